"""Gives up what one pod holds, by an operator's order; never what a live read does not prove free.

The sweep does the same by itself once a deadline has passed; this is for whoever cannot wait, and
for what a bound pod that is gone has left behind.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from enum import StrEnum

from autoscale_enforcer.cluster.binder import Binder, BindOrder
from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.ledger.calls import Context
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import KnownPod, Release
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName, PodName
from autoscale_enforcer.model.rows import Stage


class Released(StrEnum):
    """What became of the order."""

    RELEASED = "RELEASED"
    """The room is free again; in a dry run: it would be."""
    NOTHING = "NOTHING"
    """The pod holds nothing."""
    REFUSED = "REFUSED"
    """The pod keeps what it holds."""
    UNKNOWN = "UNKNOWN"
    """Nobody knows a pod of that name."""


@dataclass(frozen=True, slots=True)
class ReleaseAnswer:
    """What became of it, in words why, and what the pod held."""

    outcome: Released
    words: str
    pod: KnownPod | None = None


class Releaser:
    """Releases pods of one cluster."""

    def __init__(self, ledger: Ledger, source: ClusterSource, binder: Binder) -> None:
        self._ledger, self._source, self._binder = ledger, source, binder

    async def release(
        self, name: PodName, *, context: Context, dry_run: bool = False
    ) -> ReleaseAnswer:
        """Free what the pod holds, if one live read proves that it is not bound or finished.

        Safe to repeat. Raises LedgerUnavailable, and ClusterUnavailable where the pod cannot be
        read; then nothing is released.
        """
        stamp = await self._ledger.stamp()
        known = await self._ledger.read_pod(name=name)
        if known is None:
            return ReleaseAnswer(Released.UNKNOWN, "the ledger knows no pod of that name")
        if not known.row.holds:
            return ReleaseAnswer(Released.NOTHING, "it holds nothing", known)
        fact = await self._source.read_pod(name)
        end = _proof_of_end(known, fact)
        if not end and (refusal := _refusal(known, fact)):
            return ReleaseAnswer(Released.REFUSED, refusal, known)
        proof = end or "the cluster has it unbound"
        if dry_run:
            return ReleaseAnswer(Released.RELEASED, proof, known)
        order = BindOrder(
            uid=known.uid, name=name, node=NodeName(known.row.node), stamp=stamp, context=context
        )
        freed = self._forget(order) if end else self._give_up(order, known, fact)
        if await freed:
            return ReleaseAnswer(Released.RELEASED, proof, known)
        words = "it was bound or reserved anew meanwhile"
        return ReleaseAnswer(Released.REFUSED, words, known)

    def _give_up(self, order: BindOrder, known: KnownPod, fact: PodFact | None) -> Awaitable[bool]:
        if known.row.stage == Stage.BINDING:
            return self._settle(order, fact)
        return self._unreserve(order)

    async def _forget(self, order: BindOrder) -> bool:
        await self._ledger.release_leftover(order.uid, context=order.context)
        return True  # whoever did it

    async def _unreserve(self, order: BindOrder) -> bool:
        answer = await self._ledger.unreserve_pod(
            order.uid, node=order.node, stamp=order.stamp, context=order.context
        )
        return answer is Release.RELEASED

    async def _settle(self, order: BindOrder, fact: PodFact | None) -> bool:
        """A Binding may still be on its way: it is shut out first, as the sweep does."""
        await self._binder.settle(order, fact)
        now = await self._ledger.read_pod(uid=order.uid)
        return now is None or not now.row.holds


def _proof_of_end(known: KnownPod, fact: PodFact | None) -> str:
    """Why the pod holds nothing for good, as the cluster has it; empty where it may."""
    if fact is None:
        return "the cluster has no pod of that name"
    if fact.uid != known.uid:
        return "the cluster has another pod of that name"
    return "it is finished" if fact.finished else ""


def _refusal(known: KnownPod, fact: PodFact | None) -> str:
    if fact and fact.node:
        return f"the cluster has it bound to {fact.node} and not finished"
    if known.row.stage == Stage.BOUND:
        return "the ledger has it bound, the cluster unbound: ask for a compare"
    return ""
