"""Binds pods: room in the ledger first, then one Binding, then what the cluster says of it.

kube-scheduler abandons a slow bind and sends others for other nodes while it runs, so a bind is
settled by what a live read says and never by guessing. Safe to repeat and to run concurrently at
any number of replicas; a caller that goes away changes nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from autoscale_enforcer.cluster.source import Bound, ClusterSource
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable
from autoscale_enforcer.ledger.calls import Context
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Reserve, ReserveAnswer
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import PodRow, said_row

PATIENCE = 1.0
"""Seconds that a Binding is waited for before the pod is looked at: what is bound and unanswered
is found in time for the answer to kube-scheduler, and an API server that answers is never asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindOrder:
    """One bind that was asked for."""

    uid: PodUid
    name: PodName
    node: NodeName
    stamp: int
    """Of the call; the hold begins with it and is given up by it."""
    context: Context


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod is not bound to the node: the script's answer, or words for people."""

    answer: ReserveAnswer | None = None
    words: str = ""


class Binder:
    """Binds pods of one cluster through one ledger."""

    def __init__(self, ledger: Ledger, source: ClusterSource, config: LiveConfig) -> None:
        self._ledger, self._source, self._config = ledger, source, config

    async def bind(self, order: BindOrder, *, said: PodRow | None) -> Refusal | None:
        """Bind the pod; None: it is bound to that node, now or already.

        `said` is what the pod needs, where this replica has heard; else the ledger's word counts,
        else a live read. Raises LedgerUnavailable before anything was sent, ClusterUnavailable
        where the pod could not be read; the hold then stays until the sweep has settled it.
        """
        answer = await self.reserve(order, said=said, to="binding")
        if answer.outcome is Reserve.BOUND:
            return None
        if answer.outcome not in (Reserve.BINDING, Reserve.IGNORED):
            return Refusal(answer)
        return await self._send(order, answer, said, may_send_again=True)

    async def reserve(
        self, order: BindOrder, *, said: PodRow | None, to: Literal["held", "binding"]
    ) -> ReserveAnswer:
        """Hold room; one live read where only that can tell what to hold.

        Raises as `bind` does; safe to repeat.
        """
        answer = await self._hold(order, said, to)
        if not self._is_in_doubt(order, answer):
            return answer
        fact = await self._source.read_pod(order.name)
        if fact is None or fact.uid != order.uid:
            return ReserveAnswer(outcome=Reserve.GONE)
        ignored = self._is_ignored(order.name)
        await self._ledger.put_pod(fact, leader=None, ignored=ignored, context=order.context)
        return await self._hold(order, said_row(fact, ignored=ignored), to)

    async def settle(self, order: BindOrder, fact: PodFact | None) -> Refusal | None:
        """Find out what became of a bind whose Binding may be on its way; as `bind` answers.

        `fact` is a live read begun after the hold's deadline.
        """
        if self._is_open(order, fact):
            fact = await self._source.outdate_bindings(fact) if fact else None
        return await self._book(order, fact)

    async def _hold(
        self, order: BindOrder, said: PodRow | None, to: Literal["held", "binding"]
    ) -> ReserveAnswer:
        return await self._ledger.reserve_pod(
            order.uid, node=order.node, said=said, stamp=order.stamp, to=to, context=order.context
        )

    async def _send(
        self,
        order: BindOrder,
        answer: ReserveAnswer,
        said: PodRow | None,
        *,
        may_send_again: bool,
    ) -> Refusal | None:
        bound = await self._post(order, answer.resource_version or (said.rv if said else ""))
        if bound is Bound.CREATED:
            await self._confirm(order, order.node, said)
            return None
        fact = await self._source.read_pod(order.name)
        if bound is Bound.OTHER_VERSION and may_send_again and fact and self._is_open(order, fact):
            fresh = said_row(fact, ignored=self._is_ignored(order.name))
            again = await self._hold(order, fresh, "binding")
            if again.outcome in (Reserve.BINDING, Reserve.IGNORED):
                return await self._send(order, again, fresh, may_send_again=False)
        if fact and self._is_open(order, fact):
            fact = await self._source.outdate_bindings(fact)
        return await self._book(order, fact)

    async def _post(self, order: BindOrder, resource_version: str) -> Bound:
        """What became of one Binding; an answer that tarries is looked for in the pod itself."""
        post = asyncio.ensure_future(
            self._source.bind(
                order.uid, order.name, node=order.node, resource_version=resource_version
            )
        )
        try:
            await asyncio.wait({post}, timeout=PATIENCE)
            if not post.done() and await self._is_bound_before(post, order):
                return Bound.CREATED
            return await post
        except ClusterUnavailable:
            return Bound.UNCLEAR
        finally:
            await _end(post)

    async def _is_bound_before(self, post: asyncio.Future[Bound], order: BindOrder) -> bool:
        """A look at the pod finds it bound as ordered before the Binding is answered."""
        look = asyncio.ensure_future(self._is_bound(order))
        try:
            both: set[asyncio.Future[Any]] = {post, look}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return not post.done() and look.result()
        finally:
            await _end(look)

    async def _is_bound(self, order: BindOrder) -> bool:
        """The pod is bound as ordered, as far as can be told."""
        try:
            fact = await self._source.read_pod(order.name)
        except ClusterUnavailable:
            return False
        found = fact and (fact.uid, fact.node, fact.finished)
        return found == (order.uid, order.node, False)

    async def _book(self, order: BindOrder, fact: PodFact | None) -> Refusal | None:
        """What the live read proves, as a fact: nothing on its way can still change it."""
        if fact is None or fact.uid != order.uid or fact.finished or fact.node is None:
            await self._ledger.abandon_bind(
                order.uid, node=order.node, stamp=order.stamp, context=order.context
            )
            gone = fact is None or fact.uid != order.uid or fact.finished
            return Refusal(words="the pod is gone" if gone else "the Binding was refused")
        await self._confirm(order, fact.node, said_row(fact, ignored=self._is_ignored(order.name)))
        if fact.node == order.node:
            return None
        return Refusal(words="the pod is bound to another node")

    async def _confirm(self, order: BindOrder, node: NodeName, said: PodRow | None) -> None:
        try:
            await self._ledger.confirm_bind(order.uid, node=node, said=said, context=order.context)
        except LedgerUnavailable:
            # Bound all the same; the hold stays as it is, and the sweep finds it confirmed.
            return

    @staticmethod
    def _is_open(order: BindOrder, fact: PodFact | None) -> bool:
        """The pod could still be bound by a Binding sent earlier."""
        return (
            fact is not None
            and fact.uid == order.uid
            and fact.node is None
            and not fact.finished
            and not fact.deleting
        )

    def _is_in_doubt(self, order: BindOrder, answer: ReserveAnswer) -> bool:
        """Nobody knows the pod, its name is taken, or it was ignored when it was last heard of."""
        if answer.outcome is Reserve.IGNORED:
            return not self._is_ignored(order.name)
        return answer.outcome in (Reserve.UNKNOWN, Reserve.NAME_TAKEN)

    def _is_ignored(self, name: PodName) -> bool:
        return name.partition("/")[0] in self._config.current.ignored_namespaces


async def _end(task: asyncio.Future[Any]) -> None:
    """Cancel it, unless it has ended, and wait for that."""
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
