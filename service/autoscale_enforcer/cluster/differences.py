"""Where the ledger says other than the cluster: what a compare would put right, for people."""

from __future__ import annotations

from dataclasses import dataclass

from autoscale_enforcer.cluster.upkeep import wrong_sums
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.verify import node_sums
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import NodeRow, PodRow

NOTHING_KNOWN = "nothing"


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that a compare would change."""

    kind: str
    """node or pod."""
    name: str
    ledger: str
    """What the ledger says."""
    cluster: str
    """What the cluster says."""


async def sum_differences(ledger: Ledger) -> list[Difference]:
    """Nodes whose sums are not those of their pods, which a compare puts right as well."""
    found = []
    async for name, row, pods in wrong_sums(ledger):
        right = node_sums(name, row, pods)
        shown = [f"sums of {_amount(each.reserved)} in {each.pods} pods" for each in (row, right)]
        found.append(Difference("node", name, *shown))
    return found


def shown_node(row: NodeRow | None) -> str:
    """What the ledger says of a node."""
    if row is None:
        return NOTHING_KNOWN
    return "absent" if row.absent else _amount(row.capacity)


def shown_capacity(fact: NodeFact, capacity: Resources) -> str:
    """What the cluster says of a node."""
    return f"{_amount(capacity)}, version {fact.resource_version}"


def shown_row(row: PodRow | None) -> str:
    """What the ledger says of a pod."""
    if row is None:
        return NOTHING_KNOWN
    where = f"{row.stage} on {row.node}" if row.holds else str(row.stage)
    return f"{where}, {_amount(row.amount)}, version {row.rv}"


def shown_fact(fact: PodFact) -> str:
    """What the cluster says of a pod; of a VM the use, which is not its permit."""
    where = f"bound on {fact.node}" if fact.node else "pending"
    where = "finished" if fact.finished else where
    return f"{where}, {_amount(fact.wanted)}, version {fact.resource_version}"


def _amount(amount: Resources) -> str:
    return f"{amount.cpu}m and {amount.mem} bytes"
