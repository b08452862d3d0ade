"""Reads all of the books and holds Redis for milliseconds at a time, whatever their size.

They are read in portions, each of another moment. What then does not add up may have changed in
between, so just that is read again, at one moment and with all that it has to agree with: a node
with all of its pods, a pod with its name. Which pods a node has by then, the journal tells. Only
what is wrong at one moment counts.
"""

from __future__ import annotations

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.gathered import Gathered, Part
from autoscale_enforcer.ledger.reads import READ_ENTRIES, Reads
from autoscale_enforcer.ledger.verify import Books, Breach, breaches_of_rows, wrong_grants
from autoscale_enforcer.turns import FullCollections, Turns

JOURNAL_LOOKED_AT = 10_000
"""Newest entries that verify judges."""

_ATTEMPTS = 20
"""How often what keeps changing is read again."""

_SCANNED = ("meta", "changes", "nodes", "names", "deadlines", "gone", "pods")


async def find_breaches(ledger: Reads) -> list[Breach]:
    """Everything that does not hold of the ledger, while it changes; nothing is named that was
    only read at two moments. LedgerUnavailable where none is built, or it is replaced meanwhile.
    """
    reading = _Reading(ledger)
    with FullCollections.held_off():
        await reading.read()
        found = await reading.settle(with_history=True)
        books = reading.gathered.books
        found += [*books.unreadable, *reading.gathered.wrong_counts]
        found += wrong_grants(books.journal)
        await reading.gathered.drop()
    return list(dict.fromkeys(found))


async def read_books(ledger: Reads, *, blobs: bool = False) -> Books:
    """The ledger, each row as it was at some moment since the call, and so that rows agree with
    each other. LedgerUnavailable where none is built, or it is replaced or never stands still.
    """
    reading = _Reading(ledger)
    await reading.read()
    for _ in range(_ATTEMPTS):
        reading.gathered.has_changed = False
        await reading.settle(with_history=False)
        if not reading.gathered.has_changed:
            break
    else:
        raise LedgerUnavailable("the books change faster than they can be read: ask again")
    if blobs:
        # Last, so that none is missing of a pod that came meanwhile.
        await reading.scan("facts")
    return reading.gathered.whole()


class _Reading:
    """One reading of the books."""

    def __init__(self, ledger: Reads) -> None:
        self._ledger = ledger
        self.gathered = Gathered()

    async def read(self) -> None:
        """Everything, in portions, and then what the journal says of the meantime."""
        await self._read_journal()
        await self._catch_up()  # an epoch, before anything else is read
        for part in _SCANNED:
            await self.scan(part)
        await self._catch_up()

    async def scan(self, part: str) -> None:
        """One part, in portions."""
        async for flat in self._ledger.scan(part):
            self.gathered.add(part, flat)

    async def settle(self, *, with_history: bool) -> list[Breach]:
        """Look at every part, read again what does not add up; what is wrong at one moment."""
        found: list[Breach] = []
        turns = Turns()
        for part in self.gathered.parts():
            if part.size:
                found += await self._check(part, with_history=with_history)
            await turns.pause()
        return found

    async def _check(self, part: Part, *, with_history: bool) -> list[Breach]:
        part = self.gathered.closed(part)
        found = breaches_of_rows(self.gathered.of(part, with_history=with_history))
        if not found:
            return []
        asked = self.gathered.closed(part.named_by(found))
        for _ in range(_ATTEMPTS):
            is_last = await self._read_again(asked)
            needed = self.gathered.closed(asked)
            if is_last and asked.has_all_of(needed):
                return breaches_of_rows(self.gathered.of(asked, with_history=with_history))
            asked = needed
        raise LedgerUnavailable("the books change faster than they can be read: ask again")

    async def _read_journal(self) -> None:
        portions = self._ledger.scan("journal", most=JOURNAL_LOOKED_AT)
        newest_first = [flat async for flat in portions]
        turns = Turns()
        for flat in reversed(newest_first):
            self.gathered.note(list(zip(flat[::2], flat[1::2], strict=True))[::-1])
            await turns.pause()

    async def _catch_up(self) -> None:
        while not await self._read_again(Part()):
            pass

    async def _read_again(self, part: Part) -> bool:
        """Take these rows as they are now; False where the journal has still more to say."""
        meta, nodes, pods, entries, *rows = await self._ledger.read_rows(
            since=self.gathered.last_id, nodes=part.nodes, uids=part.uids, names=part.names
        )
        self.gathered.note_meta(meta, nodes, pods)
        is_first = self.gathered.last_id == "-"
        if not is_first and (not entries or entries[0][0].decode() != self.gathered.last_id):
            raise LedgerUnavailable("the journal forgets faster than it can be read: ask again")
        self.gathered.note(entries if is_first else entries[1:])
        self.gathered.take(part, *rows)
        return len(entries) < READ_ENTRIES
