"""What books may never show, numbered as DESIGN.md's invariants.

Sums are right by the way they are made here, and what only two states show (3, 4, 5) is for those
who see both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import NO_WORD, PodRow


def breaches(
    absent: Mapping[NodeName, bool], pods: Mapping[PodUid, PodRow], names: Mapping[PodName, PodUid]
) -> Iterator[str]:
    """Everything that does not hold; `absent` has every node there is."""
    for uid, row in pods.items():
        yield from (f"1 {uid}: {why}" for why in row_breaches(row))
        if row.holds and row.node not in absent:
            yield f"2 {uid} is on {row.node}, which has no row"
        if names.get(PodName(row.name)) != uid:
            yield f"2 {uid} is not what {row.name} points to"
    for name, uid in names.items():
        if uid not in pods:
            yield f"2 {name} points to {uid}, which has no row"
    used = {row.node for row in pods.values() if row.holds}
    for node, is_absent in absent.items():
        if is_absent and node not in used:
            yield f"2 {node} is deserted and still there"


def row_breaches(row: PodRow) -> Iterator[str]:
    if row.is_tentative != (row.deadline > 0):
        yield f"{row.stage} with deadline {row.deadline}"
    if row.holds != (row.node != NO_WORD):
        yield f"{row.stage} on {row.node}"
    if row.charge != row.overcommit.charge(row.amount):
        yield f"pays {row.charge} for {row.amount}"
