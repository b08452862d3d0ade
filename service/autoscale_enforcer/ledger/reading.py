"""Reads all of the books and holds Redis for milliseconds at a time, whatever their size.

They are read in portions, each of another moment. What then does not add up may have changed in
between, so just that is read again, at one moment and with all that it has to agree with: a node
with all of its pods, a pod with its name. Which pods a node has by then, the journal tells. Only
what is wrong at one moment counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.decode import add_part, as_text, pairs
from autoscale_enforcer.ledger.journal import NEW_BOOKS, JournalEntry
from autoscale_enforcer.ledger.reads import READ_ENTRIES, Reads
from autoscale_enforcer.ledger.verify import (
    Books,
    Breach,
    breaches_of_rows,
    wrong_counts,
    wrong_grants,
)
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.turns import FullCollections, Turns

JOURNAL_LOOKED_AT = 10_000
"""Newest entries that verify judges."""

_TOGETHER = 200
"""Pods that are checked at once: milliseconds of the event loop's time."""

_LOOKED_AT = 2000
"""Keys that are looked at at once for whether they need a check of their own."""

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
        found += [*reading.books.unreadable, *reading.wrong_counts]
        found += wrong_grants(reading.books.journal)
        await reading.drop()
    return list(dict.fromkeys(found))


async def read_books(ledger: Reads, *, blobs: bool = False) -> Books:
    """The ledger, each row as it was at some moment since the call, and so that rows agree with
    each other. LedgerUnavailable where none is built, or it is replaced or never stands still.
    """
    reading = _Reading(ledger)
    await reading.read()
    for _ in range(_ATTEMPTS):
        reading.has_changed = False
        await reading.settle(with_history=False)
        if not reading.has_changed:
            break
    else:
        raise LedgerUnavailable("the books change faster than they can be read: ask again")
    if blobs:
        # Last, so that none is missing of a pod that came meanwhile.
        await reading.scan("facts")
    return reading.whole()


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the books."""

    nodes: set[NodeName] = field(default_factory=set)
    uids: set[PodUid] = field(default_factory=set)
    names: set[PodName] = field(default_factory=set)

    @property
    def size(self) -> int:
        return len(self.nodes) + len(self.uids) + len(self.names)

    def has_all_of(self, other: _Part) -> bool:
        return self.nodes >= other.nodes and self.uids >= other.uids and self.names >= other.names

    def named_by(self, found: Collection[Breach]) -> _Part:
        """What of it the breaches are about."""
        subjects = {breach.subject for breach in found}
        return _Part(
            {name for name in self.nodes if name in subjects},
            {uid for uid in self.uids if uid in subjects},
            {name for name in self.names if name in subjects},
        )


class _Reading:
    """One reading of the books."""

    def __init__(self, ledger: Reads) -> None:
        self._ledger = ledger
        self.books = Books()
        self.has_changed = False
        """Something was found to be otherwise than it had been read before."""
        self.wrong_counts: list[Breach] = []
        self._last_id = "-"
        """Of the journal, as far as it was read."""
        self._epoch: str | None = None
        self._counts = (0, 0)
        self._on_node: dict[str, set[PodUid]] = {}
        """Every pod that may be on a node, by what was read of rows and of the journal."""
        self._of_pod: dict[str, list[JournalEntry]] = {}
        """Entries about each pod since the books were built."""

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
            add_part(self.books, part, pairs(flat))
            if part == "pods":
                self._place(PodUid(uid.decode()) for uid in flat[::2])

    async def settle(self, *, with_history: bool) -> list[Breach]:
        """Look at every part, read again what does not add up; what is wrong at one moment."""
        found: list[Breach] = []
        turns = Turns()
        async for part in self._parts():
            if part.size:
                found += await self._check(part, with_history=with_history)
            await turns.pause()
        return found

    async def drop(self) -> None:
        """Forget everything little by little, for at once it would stop the process."""
        turns = Turns()
        for rows in (self.books.pods, self.books.names, self._on_node, self._of_pod):
            while rows:
                rows.popitem()
                await turns.pause()

    def whole(self) -> Books:
        """The books that were read."""
        counted = {"nodes": str(len(self.books.nodes)), "pods": str(len(self.books.pods))}
        # Counts of one moment would not be those of rows that were read before and after it.
        meta = self.books.meta if self.wrong_counts else self.books.meta | counted
        return replace(self.books, meta=meta)

    async def _check(self, part: _Part, *, with_history: bool) -> list[Breach]:
        part = self._closed(part)
        found = breaches_of_rows(self._of(part, with_history=with_history))
        if not found:
            return []
        asked = self._closed(part.named_by(found))
        for _ in range(_ATTEMPTS):
            is_last = await self._read_again(asked)
            needed = self._closed(asked)
            if is_last and asked.has_all_of(needed):
                return breaches_of_rows(self._of(asked, with_history=with_history))
            asked = needed
        raise LedgerUnavailable("the books change faster than they can be read: ask again")

    async def _parts(self) -> AsyncIterator[_Part]:
        """All that was read, in parts of a few milliseconds each."""
        books, part = self.books, _Part()
        for name in list(books.nodes):
            part.nodes.add(name)
            part.uids.update(self._on_node.get(name, ()))
            if part.size >= _TOGETHER:
                yield part
                part = _Part()
        yield part
        for some in _slices(books.pods, books.deadlines, self._of_pod):
            strays = [PodUid(uid) for uid in some if not self._is_on_a_node(uid)]
            for start in range(0, len(strays), _TOGETHER):
                yield _Part(uids=set(strays[start : start + _TOGETHER]))
            yield _Part()
        for some in _slices(books.names):
            yield _Part(names={PodName(name) for name in some if not self._is_newest(name)})
        for some in _slices(books.changes):
            yield _Part(nodes={NodeName(name) for name in some if name not in books.nodes})

    def _is_on_a_node(self, uid: str) -> bool:
        row = self.books.pods.get(PodUid(uid))
        return row is not None and row.node in self.books.nodes

    def _is_newest(self, name: str) -> bool:
        """The name points to a pod that has it, which is looked at with that pod."""
        row = self.books.pods.get(self.books.names.get(PodName(name), PodUid("")))
        return row is not None and row.name == name

    def _closed(self, part: _Part) -> _Part:
        """With all that it has to agree with."""
        nodes, uids, names = set(part.nodes), set(part.uids), set(part.names)
        new_nodes, size = set(nodes), -1
        while size != (size := len(nodes) + len(uids) + len(names)):
            for node in new_nodes:
                uids |= self._on_node.get(node, set())
            uids |= {self.books.names[name] for name in names if name in self.books.names}
            rows = [row for uid in uids if (row := self.books.pods.get(uid))]
            names |= {PodName(row.name) for row in rows}
            new_nodes = {NodeName(row.node) for row in rows if row.holds} - nodes
            nodes |= new_nodes
        return _Part(nodes, uids, names)

    def _of(self, part: _Part, *, with_history: bool) -> Books:
        books = self.books
        entries = [self._of_pod.get(uid, []) for uid in part.uids] if with_history else []
        return Books(
            meta=books.meta,
            nodes=_some(books.nodes, part.nodes),
            pods=_some(books.pods, part.uids),
            names=_some(books.names, part.names),
            changes=_some(books.changes, part.nodes),
            deadlines=_some(books.deadlines, part.uids),
            gone={uid: books.gone[uid] for uid in part.uids if uid in books.gone},
            journal=[entry for of_pod in entries for entry in of_pod],
        )

    async def _read_journal(self) -> None:
        portions = self._ledger.scan("journal", most=JOURNAL_LOOKED_AT)
        newest_first = [flat async for flat in portions]
        turns = Turns()
        for flat in reversed(newest_first):
            self._note(list(zip(flat[::2], flat[1::2], strict=True))[::-1])
            await turns.pause()

    async def _catch_up(self) -> None:
        while not await self._read_again(_Part()):
            pass

    async def _read_again(self, part: _Part) -> bool:
        """Take these rows as they are now; False where the journal has still more to say."""
        meta, nodes, pods, entries, *rows = await self._ledger.read_rows(
            since=self._last_id, nodes=part.nodes, uids=part.uids, names=part.names
        )
        self._note_meta(meta, nodes, pods)
        is_first = self._last_id == "-"
        if not is_first and (not entries or entries[0][0].decode() != self._last_id):
            raise LedgerUnavailable("the journal forgets faster than it can be read: ask again")
        self._note(entries if is_first else entries[1:])
        self._take(part, *rows)
        return len(entries) < READ_ENTRIES

    def _note_meta(self, meta: list[bytes | None], nodes: int, pods: int) -> None:
        known = {
            name: value.decode()
            for name, value in zip(("epoch", "version", "nodes", "pods"), meta, strict=True)
            if value is not None
        }
        epoch = known.get("epoch", "")
        if self._epoch not in (None, epoch):
            raise LedgerUnavailable("the books began another epoch while they were read: ask again")
        self._epoch = epoch
        self.books.meta |= known
        self.wrong_counts = list(wrong_counts(known, nodes=nodes, pods=pods))

    def _note(self, entries: list[tuple[bytes, Any]]) -> None:
        for number, fields in entries:
            self._last_id = number.decode()
            entry = JournalEntry.decode(as_text(pairs(fields)))
            self.books.journal.append(entry)
            if entry.what in NEW_BOOKS:
                self._of_pod.clear()
            elif entry.is_of_pod:
                uid = PodUid(entry.uid)
                self._of_pod.setdefault(uid, []).append(entry)
                for node in (entry.source, entry.node):
                    self._on_node.setdefault(node, set()).add(uid)

    def _take(self, part: _Part, nodes: list[bytes], pods: list[bytes], names: list[bytes]) -> None:
        """Put what was read in the place of what had been read before."""
        books = self.books
        of_nodes = (("nodes", nodes[1::3]), ("changes", nodes[2::3]))
        of_pods = (("pods", pods[1::4]), ("deadlines", pods[2::4]), ("gone", pods[3::4]))
        of_names = (("names", names[1::2]),)
        subjects = {breach.subject for breach in books.unreadable}
        if subjects & (part.nodes | part.uids):
            kept = [each for each in books.unreadable if each.subject not in part.nodes | part.uids]
            books.unreadable[:] = kept
        for keys, columns in (
            (nodes[::3], of_nodes),
            (pods[::4], of_pods),
            (names[::2], of_names),
        ):
            for what, values in columns:
                self._replace(what, dict(zip(keys, values, strict=True)))
        for node in part.nodes:
            here = self._on_node.get(node, set())
            self._on_node[node] = {
                uid
                for uid in here
                if uid not in part.uids or (uid in books.pods and books.pods[uid].node == node)
            }
        self._place(part.uids)

    def _place(self, uids: Iterable[PodUid]) -> None:
        for uid in uids:
            if row := self.books.pods.get(uid):
                self._on_node.setdefault(row.node, set()).add(uid)

    def _replace(self, what: str, found: dict[bytes, bytes]) -> None:
        known: dict[Any, Any] = getattr(self.books, what)
        before = {key: known.pop(key, None) for key in map(bytes.decode, found)}
        add_part(self.books, what, {key: value for key, value in found.items() if value})
        self.has_changed |= any(known.get(key) != value for key, value in before.items())


def _slices(*keys: Collection[str]) -> Iterator[list[str]]:
    """All of the keys as they are now, some thousands at a time, for most need no look."""
    for every in map(list, keys):
        for start in range(0, len(every), _LOOKED_AT):
            yield every[start : start + _LOOKED_AT]


def _some(rows: dict[Any, Any], keys: set[Any]) -> dict[Any, Any]:
    return {key: rows[key] for key in keys if key in rows}
