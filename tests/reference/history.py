"""The journal replayed, entry by entry, over books that start empty of holds.

Independent of the sums that the scripts keep: a node's reserved is added up from its pods.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from autoscale_enforcer.ledger.journal import HoldState, JournalEntry
from autoscale_enforcer.ledger.verify import Books
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NO_WORD

GRANTING = {"reserve", "begin_bind", "request"}


@dataclass(slots=True)
class Replayed:
    """Where the journal has come to, and everything in it that may not be."""

    capacity: dict[str, Resources]
    holds: dict[str, HoldState] = field(default_factory=dict)
    place: dict[str, str] = field(default_factory=dict)
    on_node: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    problems: list[str] = field(default_factory=list)
    entries: int = 0

    def take(self, entry: JournalEntry) -> None:
        """One entry: it must begin where the pod is, and no grant may end over capacity."""
        self.entries += 1
        uid = entry.uid
        if entry.before != self.holds.get(uid):
            self.problems.append(f"{entry}: the pod was at {self.holds.get(uid)}")
        if entry.source != self.place.get(uid, NO_WORD):
            self.problems.append(f"{entry}: the pod was on {self.place.get(uid)}")
        had = self.charge(uid) if entry.source == entry.node else NOTHING
        self.on_node[entry.source].discard(uid)
        if entry.after is None:
            self.holds.pop(uid, None)
        else:
            self.holds[uid] = entry.after
        self.place[uid] = entry.node
        if entry.node != NO_WORD:
            self.on_node[entry.node].add(uid)
            self.judge(entry, had)

    def judge(self, entry: JournalEntry, had: Resources) -> None:
        """The node after the entry: the sums that it claims, and room for what was granted."""
        reserved, capacity = self.reserved(entry.node), self.capacity[entry.node]
        if entry.room != (reserved.cpu, reserved.mem, capacity.cpu, capacity.mem):
            self.problems.append(f"{entry}: its pods add up to {reserved} of {capacity}")
        now = self.charge(entry.uid)
        if entry.what in GRANTING and (
            (now.cpu > had.cpu and reserved.cpu > capacity.cpu)
            or (now.mem > had.mem and reserved.mem > capacity.mem)
        ):
            self.problems.append(f"{entry}: granted over capacity, {reserved} of {capacity}")

    def charge(self, uid: str) -> Resources:
        """What the pod is charged now."""
        state = self.holds.get(uid)
        return Resources(state.charge_cpu, state.charge_mem) if state else NOTHING

    def reserved(self, node: str) -> Resources:
        """What the node's pods add up to."""
        total = NOTHING
        for uid in self.on_node[node]:
            if not self.holds[uid].ignored:
                total += self.charge(uid)
        return total

    def differences(self, books: Books) -> list[str]:
        """Where the journal's end is not what the books say."""
        found = []
        for uid, row in books.pods.items():
            if self.holds.get(uid) not in (HoldState.of(row), None):
                found.append(f"{uid}: journal {self.holds.get(uid)}, books {row}")
            if row.holds and self.place.get(uid) != row.node:
                found.append(f"{uid}: journal {self.place.get(uid)}, books {row.node}")
        for name, node in books.nodes.items():
            if self.reserved(name) != node.reserved:
                found.append(f"{name}: journal {self.reserved(name)}, books {node.reserved}")
        return found


def replay(entries: Iterable[JournalEntry], *, start: Books) -> Replayed:
    """The entries applied in their order to the pods of `start`."""
    replayed = Replayed({name: row.capacity for name, row in start.nodes.items()})
    for uid, row in start.pods.items():
        replayed.holds[uid], replayed.place[uid] = HoldState.of(row), row.node
        if row.holds:
            replayed.on_node[row.node].add(uid)
    for entry in entries:
        if entry.is_of_pod:
            replayed.take(entry)
    return replayed
