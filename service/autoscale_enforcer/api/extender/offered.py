"""What filter and prioritize find of each node that is offered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import repeat
from typing import TypeVar

from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.api.placement import Placement
from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import NOTHING
from autoscale_enforcer.model.rows import NodeRow
from autoscale_enforcer.objects.nodes import read_node
from autoscale_enforcer.policy.fit import Reason
from autoscale_enforcer.policy.score import true_scores
from autoscale_enforcer.wire.nodes import OfferedNodes

Value = TypeVar("Value")


async def reasons_against(
    desk: Desk, fact: PodFact, offered: OfferedNodes
) -> tuple[Placement, list[Reason | None]]:
    """Why the pod may not go to each of the nodes, in the order they were offered; None: it may."""

    def by_charge(placement: Placement) -> Mapping[NodeName, Reason | None]:
        return desk.standings.verdicts(placement.charge)

    return await _of_each(
        desk, fact, offered, by_charge, Placement.why_not, unknown=Reason.UNKNOWN_NODE
    )


async def scores_of(desk: Desk, fact: PodFact, offered: OfferedNodes) -> list[int]:
    """How much each is liked for the pod, in the order they were offered; 0 where it may not go."""
    config = desk.config.current

    def by_charge(placement: Placement) -> Mapping[NodeName, int]:
        return desk.standings.scores(placement.charge, config)

    def score(placement: Placement, name: NodeName) -> int:
        node = None if placement.why_not(name) else placement.node(name)
        if node is None:
            return 0
        # Ignored namespaces are no use of the node here: their pods give way.
        own = NOTHING if placement.wanted.ignored else placement.held_on(name)
        largest = placement.mirror.largest
        return true_scores({name: node}, placement.charge - own, config, largest)[name]

    _, found = await _of_each(desk, fact, offered, by_charge, score, unknown=-1)
    return found


async def _of_each(
    desk: Desk,
    fact: PodFact,
    offered: OfferedNodes,
    by_charge: Callable[[Placement], Mapping[NodeName, Value]],
    by_itself: Callable[[Placement, NodeName], Value],
    *,
    unknown: Value,
) -> tuple[Placement, list[Value]]:
    """What the charge alone says where that is all there is to know, else what the node by itself
    does. `by_charge` has every node that is present; `unknown` is what it never says.

    Nodes that nobody knows cost a live read each, once in a while.
    """
    names, placement = offered.names, await desk.place(fact)
    found = list(map(by_charge(placement).get, names, repeat(unknown)))
    # Where a pod may go everywhere, `any` tells so in the shortest time.
    if any(found) and unknown in found:
        strangers = _where(unknown, names, found)
        await desk.learner.learn(strangers)
        placement = replace(placement, templates=_templates(desk, offered, strangers))
        found = list(map(by_charge(placement).get, names, repeat(unknown)))
        apart = {*placement.apart(names), *_where(unknown, names, found)}
    else:
        apart = placement.apart(names)
    if apart:
        pairs = zip(names, found, strict=True)
        found = [by_itself(placement, name) if name in apart else value for name, value in pairs]
    return placement, found


def _where(value: Value, names: Iterable[NodeName], values: Iterable[Value]) -> list[NodeName]:
    return [name for name, found in zip(names, values, strict=True) if found == value]


def _templates(
    desk: Desk, offered: OfferedNodes, strangers: Iterable[NodeName]
) -> dict[NodeName, NodeRow]:
    """Nodes that nobody knows, as the request describes them."""
    found = {}
    for name in strangers:
        document = None if name in desk.ledger.mirror.nodes else offered.document(name)
        if document is None:
            continue
        try:
            allocatable = read_node(document).allocatable
        except ObjectError:
            continue  # stays unknown
        capacity = desk.config.current.node_config(name).capacity(allocatable)
        found[name] = NodeRow(cap_cpu=capacity.cpu, cap_mem=capacity.mem)
    return found
