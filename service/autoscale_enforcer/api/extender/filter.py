"""filter: which of the offered nodes have room for the pod. A hint: reserve decides."""

from __future__ import annotations

from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.api.placement import UNRESOLVABLE, Judgement, Placement
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable, ObjectError, TooLate
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.policy.fit import Reason
from autoscale_enforcer.wire.extender import (
    FilterRequest,
    decode_filter_request,
    encode_filter_answer,
    encode_filter_error,
)


async def answer_filter(desk: Desk, body: bytes) -> bytes:
    """ExtenderFilterResult; trouble of ours goes into its `Error`, which is tried again soon."""
    request = decode_filter_request(body)
    try:
        return await desk.in_time(_judge(desk, request))
    except (LedgerUnavailable, ClusterUnavailable, TooLate) as error:
        return encode_filter_error(str(error))


async def _judge(desk: Desk, request: FilterRequest) -> bytes:
    fact = await desk.read_sent(request.pod)
    if isinstance(fact, ObjectError) or fact.problem:
        return _unreadable(request)
    return _answer(request, *await desk.judge(fact, request.nodes))


def _answer(request: FilterRequest, placement: Placement, judgement: Judgement) -> bytes:
    fixed = placement.fixed_to
    if fixed and fixed not in request.nodes.names:
        return encode_filter_error(f"{Reason.ELSEWHERE}: {fixed}")
    passed, refused = judgement.passed, judgement.refused
    if not passed and Reason.UNSETTLED in refused.values():
        return encode_filter_error(Reason.UNSETTLED)
    failed: dict[NodeName, str] = {}
    unresolvable: dict[NodeName, str] = {}
    for name, reason in refused.items():
        (unresolvable if reason in UNRESOLVABLE else failed)[name] = reason
    return encode_filter_answer(
        request.nodes, passed=passed, failed=failed, unresolvable=unresolvable
    )


def _unreadable(request: FilterRequest) -> bytes:
    everywhere = dict.fromkeys(request.nodes.names, str(Reason.UNREADABLE))
    return encode_filter_answer(request.nodes, passed=[], failed={}, unresolvable=everywhere)
