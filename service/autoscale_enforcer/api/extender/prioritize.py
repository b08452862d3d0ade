"""prioritize: how much each offered node is liked for the pod, 0 to 10."""

from __future__ import annotations

from random import random

from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.api.extender.offered import scores_of
from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.policy.score import drawn
from autoscale_enforcer.wire.extender import FilterRequest, decode_filter_request, encode_scores


async def answer_prioritize(desk: Desk, body: bytes) -> bytes:
    """HostPriorityList; it has no place for errors, so these are raised."""
    return await desk.in_time(_judge(desk, decode_filter_request(body)))


async def _judge(desk: Desk, request: FilterRequest) -> bytes:
    fact = await desk.read_sent(request.pod)
    names = request.nodes.names
    if isinstance(fact, ObjectError) or fact.problem:
        return encode_scores(names, [0] * len(names))
    scores = await scores_of(desk, fact, request.nodes)
    if desk.config.current.randomize_scores:
        scores = drawn(scores, _pick)
    return encode_scores(names, scores)


def _pick(true_score: int) -> int:
    return int(random() * true_score) + 1  # noqa: S311 - spreads pods, guards nothing
