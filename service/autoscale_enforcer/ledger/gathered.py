"""What was read of the books so far, and what of it has to agree with what.

In memory only: rows as they were at one moment or another, which pods each node may have by them
and by the journal, and which entries of the journal are about each pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.decode import add_part, as_text, pairs
from autoscale_enforcer.ledger.journal import NEW_BOOKS, JournalEntry
from autoscale_enforcer.ledger.verify import Books, Breach, wrong_counts
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.turns import Turns

_TOGETHER = 200
"""Pods that are checked at once: milliseconds of the event loop's time."""

_LOOKED_AT = 2000
"""Keys that are looked at at once for whether they need a check of their own."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the rows, by their keys."""

    nodes: set[NodeName] = field(default_factory=set)
    uids: set[PodUid] = field(default_factory=set)
    names: set[PodName] = field(default_factory=set)

    @property
    def size(self) -> int:
        """How many rows."""
        return len(self.nodes) + len(self.uids) + len(self.names)

    def has_all_of(self, other: Part) -> bool:
        """Nothing of `other` is missing."""
        return self.nodes >= other.nodes and self.uids >= other.uids and self.names >= other.names

    def named_by(self, found: Collection[Breach]) -> Part:
        """What of it the breaches are about."""
        subjects = {breach.subject for breach in found}
        return Part(
            {name for name in self.nodes if name in subjects},
            {uid for uid in self.uids if uid in subjects},
            {name for name in self.names if name in subjects},
        )


class Gathered:
    """The books as far as they were read."""

    def __init__(self) -> None:
        self.books = Books()
        self.has_changed = False
        """Something was found to be otherwise than it had been read before."""
        self.wrong_counts: list[Breach] = []
        self.last_id = "-"
        """Of the journal, as far as it was read."""
        self._epoch: str | None = None
        self._on_node: dict[str, set[PodUid]] = {}
        """Every pod that may be on a node, by what was read of rows and of the journal."""
        self._of_pod: dict[str, list[JournalEntry]] = {}
        """Entries about each pod since the books were built."""

    def add(self, what: str, flat: list[Any]) -> None:
        """Rows of one part of the books, for the first time."""
        add_part(self.books, what, pairs(flat))
        if what == "pods":
            self._place(PodUid(uid.decode()) for uid in flat[::2])

    def note(self, entries: list[tuple[bytes, Any]]) -> None:
        """Entries of the journal, in their order."""
        for number, fields in entries:
            self.last_id = number.decode()
            entry = JournalEntry.decode(as_text(pairs(fields)))
            self.books.journal.append(entry)
            if entry.what in NEW_BOOKS:
                self._of_pod.clear()
            elif entry.is_of_pod:
                uid = PodUid(entry.uid)
                self._of_pod.setdefault(uid, []).append(entry)
                for node in (entry.source, entry.node):
                    self._on_node.setdefault(node, set()).add(uid)

    def note_meta(self, meta: list[bytes | None], nodes: int, pods: int) -> None:
        """Which books these are, and how many rows; LedgerUnavailable where they changed."""
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

    def take(self, part: Part, nodes: list[bytes], pods: list[bytes], names: list[bytes]) -> None:
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

    def parts(self) -> Iterator[Part]:
        """All that was read, in parts of a few milliseconds each."""
        books, part = self.books, Part()
        for name in list(books.nodes):
            part.nodes.add(name)
            part.uids.update(self._on_node.get(name, ()))
            if part.size >= _TOGETHER:
                yield part
                part = Part()
        yield part
        for some in _slices(books.pods, books.deadlines, self._of_pod):
            strays = [PodUid(uid) for uid in some if not self._is_on_a_node(uid)]
            for start in range(0, len(strays), _TOGETHER):
                yield Part(uids=set(strays[start : start + _TOGETHER]))
            yield Part()
        for some in _slices(books.names):
            yield Part(names={PodName(name) for name in some if not self._is_newest(name)})
        for some in _slices(books.changes):
            yield Part(nodes={NodeName(name) for name in some if name not in books.nodes})

    def closed(self, part: Part) -> Part:
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
        return Part(nodes, uids, names)

    def of(self, part: Part, *, with_history: bool) -> Books:
        """What is known of that part, with the journal entries about its pods where asked."""
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

    def whole(self) -> Books:
        """The books that were read."""
        counted = {"nodes": str(len(self.books.nodes)), "pods": str(len(self.books.pods))}
        # Counts of one moment would not be those of rows that were read before and after it.
        meta = self.books.meta if self.wrong_counts else self.books.meta | counted
        return replace(self.books, meta=meta)

    async def drop(self) -> None:
        """Forget everything little by little, for at once it would stop the process."""
        turns = Turns()
        for rows in (self.books.pods, self.books.names, self._on_node, self._of_pod):
            while rows:
                rows.popitem()
                await turns.pause()

    def _is_on_a_node(self, uid: str) -> bool:
        row = self.books.pods.get(PodUid(uid))
        return row is not None and row.node in self.books.nodes

    def _is_newest(self, name: str) -> bool:
        """The name points to a pod that has it, which is looked at with that pod."""
        row = self.books.pods.get(self.books.names.get(PodName(name), PodUid("")))
        return row is not None and row.name == name

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
