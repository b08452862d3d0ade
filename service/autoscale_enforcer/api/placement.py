"""Where one pod may go: what filter, prioritize and preempt know of it, and what they conclude."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autoscale_enforcer.ledger.freezes import EVERYWHERE
from autoscale_enforcer.ledger.mirror import Mirror
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NodeRow, PodRow, newer
from autoscale_enforcer.policy.fit import Reason, could_ever_fit, short_of

UNRESOLVABLE = frozenset({Reason.TOO_SMALL, Reason.UNREADABLE, Reason.FROZEN})
"""No pod leaving a node changes these: kube-scheduler need not look for victims there."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One pod against the nodes as they are now."""

    mirror: Mirror
    wanted: PodRow
    """What it needs: the newer of what was sent and what the ledger has."""
    own: PodRow | None
    """What it holds already."""
    charge: Resources
    """What a node would pay for it."""
    templates: Mapping[NodeName, NodeRow] = field(default_factory=dict)
    """Nodes that nobody knows, as the request describes them: a cluster-autoscaler asks whether a
    node that it might add would do."""

    @classmethod
    def of(cls, mirror: Mirror, *, sent: PodRow, known: PodRow | None) -> Placement:
        """`sent` is what the request says of the pod, `known` the ledger's row of it."""
        wanted = known if known and newer(known.rv, sent.rv) else sent
        own = known if known and known.holds else None
        return cls(mirror, wanted, own, wanted.overcommit.charge(wanted.amount))

    def node(self, name: NodeName) -> NodeRow | None:
        """The node in the ledger, else as the request describes it; None: neither."""
        row = self.mirror.nodes.get(name)
        return self.templates.get(name) if row is None else row

    @property
    def fixed_to(self) -> NodeName | None:
        """The only node it may be on, where a Binding is or may be on its way or done."""
        if self.own and self.own.stage in ("binding", "bound"):
            return NodeName(self.own.node)
        return None

    def why_not(self, name: NodeName) -> Reason | None:
        """Why the pod may not go to that node; None: it may."""
        if self.fixed_to:
            return None if self.fixed_to == name else Reason.ELSEWHERE
        node = self.node(name)
        if node is None or node.absent:
            return Reason.UNKNOWN_NODE
        if self.wanted.broken:
            return Reason.UNREADABLE
        if not could_ever_fit(node, self.charge):
            return Reason.TOO_SMALL
        if self.is_frozen(name):
            return Reason.FROZEN
        if self.mirror.is_unsettled(node):
            return Reason.UNSETTLED
        return short_of(
            capacity=node.capacity,
            taken=self.taken_by_others(name, node),
            charge=self.charge,
            had=self.held_on(name),
        )

    def apart(self, names: Iterable[NodeName]) -> set[NodeName]:
        """Which nodes its charge alone decides nothing about; all of these names, or a few nodes.

        About any other node that is present, a pod of this charge that holds nothing hears the
        same.
        """
        freezes = {NodeName(name) for name in self.mirror.freezes}
        is_open = self.mirror.is_settled and EVERYWHERE not in freezes
        if self.fixed_to or self.wanted.broken or not is_open:
            return set(names)
        return freezes | {NodeName(self.own.node)} if self.own else freezes

    def is_frozen(self, name: NodeName) -> bool:
        """Grants are stopped there, and it would take one: it does not hold as much already."""
        if not self.mirror.is_frozen(name):
            return False
        return self.charge.at_most(self.held_on(name)) != self.charge

    def held_on(self, name: NodeName) -> Resources:
        """What it holds on that node already."""
        return self.own.charge if self.own and self.own.node == name else NOTHING

    def taken_by_others(self, name: NodeName, node: NodeRow) -> Resources:
        """What filter sees as taken there: ignored namespaces too, so that fillers get evicted."""
        return node.reserved + node.ignored - self.held_on(name)
