"""bind: room in the ledger, then the Binding, then what the cluster says of it."""

from __future__ import annotations

from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.api.extender.reserve import words_of
from autoscale_enforcer.cluster.binder import Refusal
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable, TooLate
from autoscale_enforcer.wire.extender import (
    BindRequest,
    decode_bind_request,
    encode_bind_answer,
)


async def answer_bind(desk: Desk, body: bytes) -> bytes:
    """ExtenderBindingResult; its `Error` says why the pod is not bound there, or not surely.

    A caller that goes away, or an answer that is due before the end, changes nothing: what was
    begun is ended.
    """
    request = decode_bind_request(body)
    try:
        refusal = await desk.in_time(desk.see_through(_bind(desk, request)))
    except (LedgerUnavailable, ClusterUnavailable, TooLate) as error:
        return encode_bind_answer(str(error))
    return encode_bind_answer(_words(refusal) if refusal else "")


async def _bind(desk: Desk, request: BindRequest) -> Refusal | None:
    order = await desk.order("bind", request.pod, request.node)
    return await desk.binder.bind(order, said=desk.heard_of(order.uid))


def _words(refusal: Refusal) -> str:
    return refusal.words or (words_of(refusal.answer) if refusal.answer else "refused")
