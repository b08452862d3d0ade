"""prioritize: how much each offered node is liked for the pod, 0 to 10."""

from __future__ import annotations

import random

from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.api.placement import Placement, largest_capacity
from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.policy.score import score_node
from autoscale_enforcer.wire.extender import FilterRequest, decode_filter_request, encode_scores


async def answer_prioritize(desk: Desk, body: bytes) -> bytes:
    """HostPriorityList; it has no place for errors, so these are raised."""
    return await desk.in_time(_judge(desk, decode_filter_request(body)))


async def _judge(desk: Desk, request: FilterRequest) -> bytes:
    fact = await desk.read_sent(request.pod)
    if isinstance(fact, ObjectError) or fact.problem:
        return encode_scores(dict.fromkeys(request.nodes.names, 0))
    placement = await desk.place(fact, request.nodes)
    largest = largest_capacity(placement.mirror)
    return encode_scores(
        {name: _score(desk, placement, name, largest) for name in request.nodes.names}
    )


def _score(desk: Desk, placement: Placement, name: NodeName, largest: Resources) -> int:
    node = placement.node(name)
    if node is None:
        return 0
    # Ignored namespaces are no use of the node here: their pods give way.
    others = node.reserved - (NOTHING if placement.wanted.ignored else placement.held_on(name))
    return score_node(
        shape=desk.config.current.node_config(name).scoring,
        capacity=node.capacity,
        used_after=others + placement.charge,
        largest=largest,
        fits=placement.why_not(name) is None,
        pick=_pick if desk.config.current.randomize_scores else None,
    )


def _pick(true_score: int) -> int:
    return random.randint(1, true_score)  # noqa: S311 - spreads pods, guards nothing
