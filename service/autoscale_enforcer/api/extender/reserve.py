"""reserve and unreserve, for schedulers that have such steps of their own."""

from __future__ import annotations

from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable, ObjectError, TooLate
from autoscale_enforcer.ledger.outcomes import Release, Reserve, ReserveAnswer
from autoscale_enforcer.model.rows import PodRow
from autoscale_enforcer.policy.fit import SHORT_OF, Reason
from autoscale_enforcer.wire.extender import (
    ReserveCode,
    ReserveRequest,
    UnreserveRequest,
    decode_reserve_request,
    decode_unreserve_request,
    encode_reserve_answer,
)
from autoscale_enforcer.wire.pods import PodReference

CODES: dict[Reserve, tuple[ReserveCode, str]] = {
    Reserve.HELD: (ReserveCode.SUCCESS, ""),
    Reserve.BINDING: (ReserveCode.SUCCESS, ""),
    Reserve.BOUND: (ReserveCode.SUCCESS, ""),
    Reserve.IGNORED: (ReserveCode.SUCCESS, ""),
    Reserve.NO_ROOM: (ReserveCode.UNSCHEDULABLE, Reason.BOTH),
    Reserve.NO_NODE: (ReserveCode.UNSCHEDULABLE, Reason.UNKNOWN_NODE),
    Reserve.CONFLICT: (ReserveCode.UNRESOLVABLE, Reason.ELSEWHERE),
    Reserve.GONE: (ReserveCode.UNRESOLVABLE, Reason.GONE),
    Reserve.UNREADABLE: (ReserveCode.UNRESOLVABLE, Reason.UNREADABLE),
    Reserve.NAME_TAKEN: (ReserveCode.UNSCHEDULABLE, Reason.NAME_TAKEN),
    Reserve.FROZEN: (ReserveCode.UNRESOLVABLE, Reason.FROZEN),
    Reserve.UNSETTLED: (ReserveCode.ERROR, Reason.UNSETTLED),
    Reserve.BUSY: (ReserveCode.ERROR, Reason.ELSEWHERE),
    Reserve.LATE: (ReserveCode.ERROR, Reason.LATE),
}
"""What a scheduler is told of each answer of the script, and in which words. Of a pod that the
script does not know the binder asks the cluster, and what that says it knows."""


def words_of(answer: ReserveAnswer) -> str:
    """Why not, for people; empty for a success."""
    if answer.outcome is Reserve.NO_ROOM:
        return SHORT_OF[answer.short]
    return CODES[answer.outcome][1]


async def answer_reserve(desk: Desk, body: bytes) -> bytes:
    """`{"Code", "Reasons"}`; trouble of ours is Code "Error": ask again. Safe to repeat."""
    request = decode_reserve_request(body)
    try:
        return await desk.in_time(_reserve(desk, request))
    except (LedgerUnavailable, ClusterUnavailable, TooLate) as error:
        return encode_reserve_answer(ReserveCode.ERROR, [str(error)])


async def _reserve(desk: Desk, request: ReserveRequest) -> bytes:
    order = await desk.order("reserve", _reference(request), request.node)
    said = await _said(desk, request)
    if isinstance(said, ObjectError):
        return encode_reserve_answer(ReserveCode.UNRESOLVABLE, [Reason.UNREADABLE])
    answer = await desk.binder.reserve(order, said=said, to="held")
    reason = words_of(answer)
    return encode_reserve_answer(CODES[answer.outcome][0], [reason] if reason else [])


async def answer_unreserve(desk: Desk, body: bytes) -> bytes:
    """`{"Code", "Reasons"}`; a hold that is not there is a success too. Safe to repeat."""
    request = decode_unreserve_request(body)
    try:
        return await desk.in_time(_unreserve(desk, request))
    except (LedgerUnavailable, TooLate) as error:
        return encode_reserve_answer(ReserveCode.ERROR, [str(error)])


async def _unreserve(desk: Desk, request: UnreserveRequest) -> bytes:
    order = await desk.order("unreserve", request.pod, request.node)
    answer = await desk.ledger.unreserve_pod(
        order.uid, node=order.node, stamp=order.stamp, context=order.context
    )
    if answer is Release.LATE:
        return encode_reserve_answer(ReserveCode.ERROR, [Reason.LATE])
    return encode_reserve_answer(ReserveCode.SUCCESS)


def _reference(request: ReserveRequest) -> PodReference:
    return request.pod if isinstance(request.pod, PodReference) else request.pod.reference


async def _said(desk: Desk, request: ReserveRequest) -> PodRow | ObjectError | None:
    """What the pod needs; None where it was only referred to: the ledger's word counts."""
    if isinstance(request.pod, PodReference):
        return desk.heard_of(request.pod.uid)
    fact = await desk.read_sent(request.pod)
    if isinstance(fact, ObjectError):
        return fact
    await desk.note(fact)
    return desk.say(fact)
