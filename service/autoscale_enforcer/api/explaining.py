"""Why a pod fits on a node or not, with the numbers that its reason leaves out; for people."""

from __future__ import annotations

from typing import Any

from autoscale_enforcer.api.placement import Placement
from autoscale_enforcer.ledger.mirror import Mirror
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NodeRow, PodRow


def explanation(mirror: Mirror, row: PodRow) -> dict[str, Any]:
    """What filter would say of the pod on each node of the ledger, as `mirror` has them."""
    placement = Placement.of(mirror, sent=row, known=row)
    nodes = sorted(mirror.nodes.items())
    return {
        "needs": amounts(placement.charge),
        "fixedTo": placement.fixed_to,
        "nodes": [_of_node(placement, name, node) for name, node in nodes],
    }


def _of_node(placement: Placement, name: NodeName, node: NodeRow) -> dict[str, Any]:
    reason = placement.why_not(name)
    taken, held = placement.taken_by_others(name, node), placement.held_on(name)
    missing = (taken + placement.charge - node.capacity).at_least(NOTHING)
    return {
        "name": name,
        "fits": reason is None,
        "reason": reason,
        "capacity": amounts(node.capacity),
        "takenByOthers": amounts(taken),
        "left": amounts((node.capacity - taken).at_least(NOTHING)),
        "held": amounts(held),
        "missing": amounts(missing),
    }


def amounts(amount: Resources) -> dict[str, int]:
    """CPU in millicores, memory in bytes."""
    return {"cpuMilli": amount.cpu, "memoryBytes": amount.mem}
