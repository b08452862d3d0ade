"""prioritize: how much each offered node is liked for the pod, 0 to 10."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from random import random

from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.api.placement import Placement
from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.policy.score import drawn, true_scores
from autoscale_enforcer.wire.extender import FilterRequest, decode_filter_request, encode_scores


async def answer_prioritize(desk: Desk, body: bytes) -> bytes:
    """HostPriorityList; it has no place for errors, so these are raised."""
    return await desk.in_time(_judge(desk, decode_filter_request(body)))


async def _judge(desk: Desk, request: FilterRequest) -> bytes:
    fact = await desk.read_sent(request.pod)
    names = request.nodes.names
    if isinstance(fact, ObjectError) or fact.problem:
        return encode_scores(dict.fromkeys(names, 0))
    placement, judgement = await desk.judge(fact, request.nodes)
    scores = dict.fromkeys(names, 0) | _true_scores(desk, placement, judgement.passed)
    if desk.config.current.randomize_scores:
        scores = dict(zip(scores, drawn(scores.values(), _pick), strict=True))
    return encode_scores(scores)


def _true_scores(
    desk: Desk, placement: Placement, names: Sequence[NodeName]
) -> dict[NodeName, int]:
    """Of these nodes, where the pod may go."""
    config, charge, mirror = desk.config.current, placement.charge, placement.mirror
    known = desk.standings.scores(charge, config)
    found = dict(zip(names, map(known.get, names, repeat(0)), strict=True))
    others = true_scores(placement.templates, charge, config, mirror.largest)
    own = placement.own
    if own and own.node in mirror.nodes and not placement.wanted.ignored:
        here = {NodeName(own.node): mirror.nodes[NodeName(own.node)]}
        others |= true_scores(here, charge - own.charge, config, mirror.largest)
    return found | {name: score for name, score in others.items() if name in found}


def _pick(true_score: int) -> int:
    return int(random() * true_score) + 1  # noqa: S311 - spreads pods, guards nothing
