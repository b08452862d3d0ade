"""filter: which of the offered nodes have room for the pod. A hint: reserve decides."""

from __future__ import annotations

from collections.abc import Sequence

from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.api.extender.offered import reasons_against
from autoscale_enforcer.api.placement import UNRESOLVABLE
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable, ObjectError, TooLate
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.policy.fit import Reason
from autoscale_enforcer.wire.extender import (
    FilterRequest,
    decode_filter_request,
    encode_filter_answer,
    encode_filter_error,
)
from autoscale_enforcer.wire.nodes import OfferedNodes


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
    placement, reasons = await reasons_against(desk, fact, request.nodes)
    fixed = placement.fixed_to
    if fixed and fixed not in request.nodes.names:
        return encode_filter_error(f"{Reason.ELSEWHERE}: {fixed}")
    return _answer(request.nodes, reasons)


def _answer(offered: OfferedNodes, reasons: Sequence[Reason | None]) -> bytes:
    passed: Sequence[NodeName] = offered.names
    failed: dict[NodeName, str] = {}
    unresolvable: dict[NodeName, str] = {}
    if any(reasons):
        pairs = list(zip(offered.names, reasons, strict=True))
        passed = [name for name, reason in pairs if not reason]
        if not passed and Reason.UNSETTLED in reasons:
            return encode_filter_error(Reason.UNSETTLED)
        for name, reason in pairs:
            if reason:
                (unresolvable if reason in UNRESOLVABLE else failed)[name] = reason
    return encode_filter_answer(offered, passed=passed, failed=failed, unresolvable=unresolvable)


def _unreadable(request: FilterRequest) -> bytes:
    everywhere = dict.fromkeys(request.nodes.names, str(Reason.UNREADABLE))
    return encode_filter_answer(request.nodes, passed=[], failed={}, unresolvable=everywhere)
