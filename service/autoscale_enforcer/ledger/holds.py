"""Room held for pods, and permits for VMs: what the ledger decides."""

from __future__ import annotations

from typing import Literal

from autoscale_enforcer.ledger.calls import Calls, Context
from autoscale_enforcer.ledger.outcomes import (
    Confirm,
    Permit,
    PermitAnswer,
    Release,
    Reserve,
    ReserveAnswer,
)
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import PodRow


class Holds(Calls):
    """Reserve and release, bind, and the agents' requests."""

    async def reserve_pod(
        self,
        uid: PodUid,
        *,
        node: NodeName,
        said: PodRow | None,
        stamp: int,
        to: Literal["held", "binding"] = "held",
        context: Context | None = None,
    ) -> ReserveAnswer:
        """Hold room for a pod on a node; `to="binding"` also begins a bind.

        `said` is what the pod's object says (`said_row`); None: what the ledger knows of it.
        Safe to repeat: the same pod, node and stamp count once.
        """
        word, *rest = await self._promise(
            "reserve_pod",
            context,
            stamp=stamp,
            uid=uid,
            node=node,
            said=said.encode() if said else "",
            to=to,
            hold_ms=int(self.settings.hold_lifetime.total_seconds() * 1000),
        )
        outcome = Reserve(word)
        if outcome in (Reserve.HELD, Reserve.BINDING, Reserve.BOUND):
            cpu, mem, rv = rest
            amount = Resources(cpu, mem)
            return ReserveAnswer(outcome=outcome, amount=amount, resource_version=rv.decode())
        text = rest[0].decode() if rest else ""
        return ReserveAnswer(
            outcome=outcome,
            short=text if outcome is Reserve.NO_ROOM else "",
            node=NodeName(text) if outcome in (Reserve.BUSY, Reserve.CONFLICT) else None,
            uid=PodUid(text) if outcome is Reserve.NAME_TAKEN else None,
        )

    async def unreserve_pod(
        self, uid: PodUid, *, node: NodeName, stamp: int, context: Context | None = None
    ) -> Release:
        """Release what is held for a pod on that node, unless it was reserved again since.

        Safe to repeat, and to ask before there was a hold.
        """
        word, *_ = await self._promise("unreserve_pod", context, stamp=stamp, uid=uid, node=node)
        return Release(word)

    async def confirm_bind(
        self,
        uid: PodUid,
        *,
        node: NodeName,
        said: PodRow | None = None,
        context: Context | None = None,
    ) -> Confirm:
        """Book that the cluster has the pod bound to the node. A fact: safe to repeat, ever."""
        word, *_ = await self._change(
            "confirm_bind", context, uid=uid, node=node, said=said.encode() if said else ""
        )
        return Confirm(word)

    async def abandon_bind(
        self, uid: PodUid, *, node: NodeName, stamp: int, context: Context | None = None
    ) -> Release:
        """Give up a bind that provably did not happen; `stamp` is the one it began with.

        Safe to repeat. Another call that took the bind over is left alone.
        """
        word, *_ = await self._change("abandon_bind", context, stamp=stamp, uid=uid, node=node)
        return Release(word)

    async def request_permit(
        self,
        name: PodName,
        *,
        asked: Resources,
        factor: Resources,
        last_permit: Resources | None,
        stamp: int,
        context: Context | None = None,
    ) -> PermitAnswer:
        """An agent asks for room for its VM, or tells that the VM has shrunk.

        Safe to repeat with its stamp: the permit is at least the same.
        """
        last = last_permit or NOTHING
        word, *rest = await self._promise(
            "request_permit",
            context,
            stamp=stamp,
            name=name,
            cpu=asked.cpu,
            mem=asked.mem,
            factor_cpu=factor.cpu,
            factor_mem=factor.mem,
            last_cpu=last.cpu,
            last_mem=last.mem,
        )
        return PermitAnswer(outcome=Permit(word), amount=Resources(*rest) if rest else NOTHING)
