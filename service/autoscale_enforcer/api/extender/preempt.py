"""preempt: which of the nodes that kube-scheduler would clear would then have room.

The scheduler counts victims with what they request, the ledger with what they hold.
"""

from __future__ import annotations

import asyncio

from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.api.placement import Placement
from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.policy.preempt import fits_without
from autoscale_enforcer.wire.victims import (
    PreemptRequest,
    Victims,
    decode_preempt_request,
    encode_preempt_answer,
)


async def answer_preempt(desk: Desk, body: bytes) -> bytes:
    """ExtenderPreemptionResult; it has no place for errors, so these are raised."""
    return await desk.in_time(_judge(desk, decode_preempt_request(body)))


async def _judge(desk: Desk, request: PreemptRequest) -> bytes:
    fact = await desk.read_sent(request.pod)
    if isinstance(fact, ObjectError) or fact.problem:
        return encode_preempt_answer({})
    placement = await desk.place(fact)
    judged = await asyncio.gather(
        *(_victims(desk, placement, name, offered) for name, offered in request.victims.items())
    )
    kept = {name: victims for name, victims in zip(request.victims, judged, strict=True) if victims}
    return encode_preempt_answer(kept)


async def _victims(
    desk: Desk, placement: Placement, name: NodeName, offered: Victims
) -> Victims | None:
    """Those of the victims that are still to be evicted there; None where it is not worth it.

    kube-scheduler hears of deletions before the ledger does: a victim that a live read does not
    find has left already, and naming it would be an error there.
    """
    node = placement.mirror.nodes.get(name)
    if node is None or node.absent or placement.fixed_to not in (None, name):
        return None
    if placement.is_frozen(name):
        return None  # its victims would be evicted for nothing
    live = await desk.source.pods_on(name)
    known = await desk.ledger.read_pods(offered.uids)
    leaving = [pod.row for pod in known if pod and pod.row.holds and pod.row.node == name]
    if not fits_without(node, leaving, charge=placement.charge, own=placement.held_on(name)):
        return None
    still_there = tuple(uid for uid in offered.uids if uid in live)
    if not still_there:
        return None
    return Victims(uids=still_there, pdb_violations=offered.pdb_violations)
