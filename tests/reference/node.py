"""A node, and the row that its pods make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NO_WORD, NodeRow, PodRow, Stage, newer


@dataclass(frozen=True, slots=True)
class Node:
    """What is kept of a node, its sums apart. Frozen, like every row in these books."""

    uid: str = NO_WORD
    rv: str = NO_WORD
    config: str = NO_WORD
    capacity: Resources = NOTHING
    absent: bool = False

    def is_overtaking(self, config: str) -> bool:
        """A newer config is behind it than this one; only the ConfigMap's versions are in order."""
        return (self.config + config).isdigit() and newer(self.config, config)


UNDESCRIBED = Node(absent=True)
"""A node that pods are on and nobody has described."""


def node_row(node: Node, pods: Sequence[PodRow], epoch: str) -> NodeRow:
    """The node's row while just these pods hold something on it, whatever its version."""
    counted = [row for row in pods if not row.ignored]
    scaled = [row for row in pods if row.scaled and row.stage == Stage.BOUND]
    sums = {
        "cap": node.capacity,
        "reserved": sum((row.charge for row in counted), NOTHING),
        "committed": sum((row.amount for row in counted), NOTHING),
        "ignored": sum((row.charge for row in pods if row.ignored), NOTHING),
        "migrating": sum((row.charge for row in pods if row.moving), NOTHING),
        "pressure": sum(((row.asked - row.amount).at_least(NOTHING) for row in pods), NOTHING),
    }
    return NodeRow(
        uid=node.uid,
        rv=node.rv,
        config=node.config,
        epoch=epoch,
        absent=int(node.absent),
        pods=len(pods),
        vms=len(scaled),
        heard=sum(row.heard == epoch for row in scaled),
        **{f"{name}_cpu": amount.cpu for name, amount in sums.items()},
        **{f"{name}_mem": amount.mem for name, amount in sums.items()},
    )
