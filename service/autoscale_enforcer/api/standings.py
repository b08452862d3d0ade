"""What every node says to a charge: worked out once, then only where a node has changed.

kube-scheduler asks twice of each pod, filter and then prioritize, and the pods of a Deployment
cost the same. Nothing is kept that a change of a row, of the config or of the largest node does
not renew before it is read again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from autoscale_enforcer.config.scheduler_config import SchedulerConfig
from autoscale_enforcer.ledger.mirror import Mirror
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import Room
from autoscale_enforcer.policy.fit import Reason, verdicts
from autoscale_enforcer.policy.score import true_scores

Value = TypeVar("Value")

KEPT = 16
"""Charges, those that were asked about last: 150 to 300 KB each for 5,000 nodes."""


class Standings:
    """Of the nodes that a mirror has, as they are when they are asked for."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._verdicts = _ByCharge[Reason | None](mirror)
        self._scores = _ByCharge[int](mirror)
        self._scored_by: tuple[SchedulerConfig, Resources] | None = None

    def verdicts(self, charge: Resources) -> Mapping[NodeName, Reason | None]:
        """Why a pod of this charge that holds nothing has no room on each node that is present;
        None: it has. Freezes and what is unsettled are not looked at.
        """
        return self._verdicts.of(charge, lambda rooms: verdicts(rooms, charge))

    def scores(self, charge: Resources, config: SchedulerConfig) -> Mapping[NodeName, int]:
        """How much each node that is present is liked for it; 0 where it has no room."""
        largest = self._mirror.largest
        if self._scored_by is None or (config, largest) != self._scored_by:
            self._scores, self._scored_by = _ByCharge(self._mirror), (config, largest)

        def score(rooms: Mapping[NodeName, Room]) -> dict[NodeName, int]:
            reasons, nodes = self.verdicts(charge), self._mirror.nodes
            rows = {name: nodes[name] for name in rooms if not reasons[name]}
            return dict.fromkeys(rooms, 0) | true_scores(rows, charge, config, largest)

        return self._scores.of(charge, score)


class _ByCharge(Generic[Value]):
    """One value of each node, for some charges."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._kept: OrderedDict[Resources, tuple[int, dict[NodeName, Value]]] = OrderedDict()

    def of(
        self,
        charge: Resources,
        work_out: Callable[[Mapping[NodeName, Room]], dict[NodeName, Value]],
    ) -> Mapping[NodeName, Value]:
        """The values of all rooms, brought up to date."""
        rooms, (revision, values) = self._mirror.rooms, self._kept.pop(charge, (-1, {}))
        changed = self._mirror.changed_since(revision) if revision >= 0 else None
        if changed is None:
            values = work_out(rooms)
        else:
            for name in changed:
                values.pop(name, None)
            values |= work_out({name: rooms[name] for name in changed if name in rooms})
        self._kept[charge] = self._mirror.revision, values
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return values
