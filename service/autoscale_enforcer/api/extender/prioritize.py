"""prioritize: how much each offered node is liked for the pod, 0 to 10."""

from __future__ import annotations

import random
from collections.abc import Iterator

from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.api.placement import Placement
from autoscale_enforcer.config.scheduler_config import ScoreShape
from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import NOTHING
from autoscale_enforcer.policy.score import Score, scorer
from autoscale_enforcer.wire.extender import FilterRequest, decode_filter_request, encode_scores


async def answer_prioritize(desk: Desk, body: bytes) -> bytes:
    """HostPriorityList; it has no place for errors, so these are raised."""
    return await desk.in_time(_judge(desk, decode_filter_request(body)))


async def _judge(desk: Desk, request: FilterRequest) -> bytes:
    fact = await desk.read_sent(request.pod)
    scores = dict.fromkeys(request.nodes.names, 0)
    if isinstance(fact, ObjectError) or fact.problem:
        return encode_scores(scores)
    placement = await desk.place(fact, request.nodes)
    scores.update(_scores(desk, placement, request.nodes.names))
    return encode_scores(scores)


def _scores(
    desk: Desk, placement: Placement, names: tuple[NodeName, ...]
) -> Iterator[tuple[NodeName, int]]:
    """Of the nodes that the pod may go to; the others are worth nothing."""
    config, charge = desk.config.current, placement.charge
    pick = _pick if config.randomize_scores else None
    score_by: dict[ScoreShape, Score] = {}
    refused = placement.refusals(names)
    for name in names:
        node = None if name in refused else placement.node(name)
        if node is None:
            continue
        shape = config.node_config(name).scoring
        if shape not in score_by:
            score_by[shape] = scorer(shape, placement.mirror.largest, pick)
        # Ignored namespaces are no use of the node here: their pods give way.
        own = NOTHING if placement.wanted.ignored else placement.held_on(name)
        yield (
            name,
            score_by[shape](
                node.cap_cpu,
                node.cap_mem,
                node.reserved_cpu + charge.cpu - own.cpu,
                node.reserved_mem + charge.mem - own.mem,
            ),
        )


def _pick(true_score: int) -> int:
    return random.randint(1, true_score)  # noqa: S311 - spreads pods, guards nothing
