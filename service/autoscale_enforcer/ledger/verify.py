"""Recomputes from the ledger alone what must hold of it, and names every breach.

The invariants are numbered as in ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields

from autoscale_enforcer.ledger.journal import NEW_BOOKS, HoldState, JournalEntry
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import NO_WORD, NodeRow, PodRow, Stage

SUMS = (
    *("reserved_cpu", "reserved_mem", "committed_cpu", "committed_mem"),
    *("ignored_cpu", "ignored_mem", "migrating_cpu", "migrating_mem"),
    *("pressure_cpu", "pressure_mem", "pods", "vms", "heard"),
)
"""Fields of a node's row that are sums over its pods."""


@dataclass(frozen=True, slots=True)
class Breach:
    """One thing that does not hold."""

    invariant: int
    """As ARCHITECTURE.md numbers them: 1 sums and deadlines, 2 one place a pod, 3 no grant over
    capacity, 4 versions, 5 nothing but scripts changes a row."""
    subject: str
    """The node, UID or name that it is about."""
    text: str


@dataclass(slots=True)
class Books:
    """The ledger as it was at one moment."""

    meta: dict[str, str] = field(default_factory=dict)
    nodes: dict[NodeName, NodeRow] = field(default_factory=dict)
    pods: dict[PodUid, PodRow] = field(default_factory=dict)
    names: dict[PodName, PodUid] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    changes: dict[NodeName, int] = field(default_factory=dict)
    deadlines: dict[PodUid, int] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    journal: list[JournalEntry] = field(default_factory=list)
    """The newest entries, oldest first."""
    unreadable: list[Breach] = field(default_factory=list)
    """Rows that are no rows."""


def breaches(books: Books) -> list[Breach]:
    """Everything that does not hold; empty for books that are right."""
    return [
        *books.unreadable,
        *breaches_of_rows(books),
        *wrong_grants(books.journal),
        *_wrong_counts(books),
    ]


def breaches_of_rows(books: Books) -> list[Breach]:
    """What does not hold of rows. `books` may be a part: nodes with all of their pods, each pod
    with the row its name points to, and each name with the pod it points to.
    """
    return [
        *_wrong_sums(books),
        *_wrong_deadlines(books),
        *_wrong_names(books),
        *_wrong_places(books),
        *_wrong_versions(books),
        *_wrong_history(books),
        *_wrong_charges(books),
    ]


def node_sums(name: str, row: NodeRow, pods: dict[PodUid, PodRow]) -> NodeRow:
    """The node's row as its pods say it should be."""
    right = NodeRow.decode(row.encode())
    for spec in SUMS:
        setattr(right, spec, 0)
    for pod in pods.values():
        if pod.node == name and pod.holds:
            _add(right, pod)
    return right


def has_wrong_sums(name: NodeName, row: NodeRow, pods: dict[PodUid, PodRow]) -> bool:
    """The node's row says other of its sums than these pods, which must be all of its own."""
    return node_sums(name, row, pods) != row


def _add(node: NodeRow, pod: PodRow) -> None:
    for resource in ("cpu", "mem"):
        charge = getattr(pod, f"charge_{resource}")
        amount, asked = getattr(pod, resource), getattr(pod, f"asked_{resource}")
        counted = {"ignored": charge} if pod.ignored else {"reserved": charge, "committed": amount}
        counted |= {"migrating": charge if pod.moving else 0, "pressure": max(asked - amount, 0)}
        for what, value in counted.items():
            _increase(node, f"{what}_{resource}", value)
    node.pods += 1
    if pod.scaled and pod.stage == Stage.BOUND:
        node.vms += 1
        node.heard += int(pod.heard == node.epoch)


def _increase(node: NodeRow, what: str, by: int) -> None:
    setattr(node, what, getattr(node, what) + by)


def _wrong_sums(books: Books) -> Iterator[Breach]:
    by_node: dict[str, dict[PodUid, PodRow]] = {}
    for uid, pod in books.pods.items():
        by_node.setdefault(pod.node, {})[uid] = pod
    for name, row in books.nodes.items():
        right = node_sums(name, row, by_node.get(name, {}))
        for spec in fields(NodeRow):
            is_, should = getattr(row, spec.name), getattr(right, spec.name)
            if is_ != should:
                yield Breach(1, name, f"{spec.name} is {is_}, its pods add up to {should}")


def _wrong_deadlines(books: Books) -> Iterator[Breach]:
    tentative = {uid: pod.deadline for uid, pod in books.pods.items() if pod.is_tentative}
    for uid, pod in books.pods.items():
        if pod.is_tentative != (pod.deadline > 0):
            yield Breach(1, uid, f"{pod.stage} with deadline {pod.deadline}")
    for uid in tentative.keys() | books.deadlines.keys():
        row, listed = tentative.get(uid), books.deadlines.get(uid)
        if row != listed:
            yield Breach(1, uid, f"deadline is {row} in its row, {listed} in the list")


def _wrong_names(books: Books) -> Iterator[Breach]:
    for name, uid in books.names.items():
        if uid not in books.pods:
            yield Breach(2, name, f"points to {uid}, which has no row")
        elif books.pods[uid].name != name:
            yield Breach(2, name, f"points to {uid}, whose name is {books.pods[uid].name}")
    for uid, pod in books.pods.items():
        if books.names.get(PodName(pod.name)) != uid:
            yield Breach(2, uid, f"its name {pod.name} does not point to it")


def _wrong_places(books: Books) -> Iterator[Breach]:
    for uid, pod in books.pods.items():
        if pod.stage not in list(Stage):
            yield Breach(2, uid, f"unknown stage {pod.stage}")
        elif pod.holds != (pod.node != NO_WORD):
            yield Breach(2, uid, f"{pod.stage} on node {pod.node}")
        elif pod.holds and pod.node not in books.nodes:
            yield Breach(2, uid, f"holds room on {pod.node}, which has no row")
        if uid in books.gone:
            yield Breach(2, uid, "has a row although it is gone")
    for name, row in books.nodes.items():
        if row.absent and (row.cap_cpu or row.cap_mem or not row.pods):
            yield Breach(3, name, "absent, but with capacity or without pods")


def _wrong_versions(books: Books) -> Iterator[Breach]:
    newest = int(books.meta.get("version", 0))
    for name, row in books.nodes.items():
        if row.version != books.changes.get(name):
            listed = books.changes.get(name)
            yield Breach(4, name, f"version is {row.version} in its row, {listed} in the list")
    for name, version in books.changes.items():
        if version > newest:
            yield Breach(4, name, f"version {version} is newer than the ledger's {newest}")


def wrong_grants(journal: Iterable[JournalEntry]) -> Iterator[Breach]:
    """Grants that left a node over capacity."""
    for entry in journal:
        for resource in entry.over_granted():
            text = f"{entry.what} for {entry.uid} left it over capacity in {resource}: {entry.room}"
            yield Breach(3, entry.node, text)


def _wrong_history(books: Books) -> Iterator[Breach]:
    """Each entry begins where the pod's last one ended, and the row is where the last one ended."""
    last: dict[str, HoldState | None] = {}
    for entry in books.journal:
        if entry.what in NEW_BOOKS:
            last.clear()
        elif entry.is_of_pod:
            if entry.uid in last and last[entry.uid] != entry.before:
                yield Breach(
                    5,
                    entry.uid,
                    f"{entry.what} began at {entry.before}, the entry before "
                    f"it ended at {last[entry.uid]}",
                )
            last[entry.uid] = entry.after
    for uid, state in last.items():
        row = books.pods.get(PodUid(uid))
        if (HoldState.of(row) if row else None) != state:
            yield Breach(5, uid, f"its row is {row and row.encode()}, the journal ends at {state}")


def _wrong_charges(books: Books) -> Iterator[Breach]:
    for uid, pod in books.pods.items():
        if min(pod.over_cpu, pod.over_mem) <= 0:
            yield Breach(1, uid, f"{pod.overcommit} is no discount")
        elif pod.holds and pod.charge != pod.overcommit.charge(pod.amount):
            yield Breach(1, uid, f"{pod.amount} with {pod.overcommit} is charged {pod.charge}")


def _wrong_counts(books: Books) -> Iterator[Breach]:
    if not books.unreadable:
        yield from wrong_counts(books.meta, nodes=len(books.nodes), pods=len(books.pods))


def wrong_counts(meta: Mapping[str, str], *, nodes: int, pods: int) -> Iterator[Breach]:
    """Where so many rows are there, and others are counted."""
    for what, rows in (("nodes", nodes), ("pods", pods)):
        if meta.get(what) != str(rows):
            yield Breach(1, what, f"{meta.get(what)} rows are counted, {rows} are there")
