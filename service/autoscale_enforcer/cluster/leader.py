"""What one replica at a time does: build the ledger, compare it, settle lapsed holds.

Which one is decided by the lease in Redis; every fact carries the lease's token, so a former
leader that wakes up writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from autoscale_enforcer.cluster.binder import Binder, BindOrder
from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.config.scheduler_config import SchedulerConfig
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable
from autoscale_enforcer.ledger.ledger import Leadership, Ledger
from autoscale_enforcer.ledger.outcomes import Fact, Lead
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import PodRow, Stage

log = logging.getLogger(__name__)

SWEEP_LIMIT = 100
"""Holds settled in one sweep, each by a live read; the next sweep takes the rest."""

_CHUNK = 500
"""Facts under way at once, so that a build does not make other calls wait for its own."""


class LostLead(Exception):
    """Another replica leads now: stop what only a leader may do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings:
    """How leading is shared."""

    replica: str
    lease_lifetime: timedelta
    renew_every: timedelta
    sweep_every: timedelta
    config_version: str


class Leader:
    """Leads where no other replica does. `run` until cancelled, then `resign`."""

    def __init__(
        self,
        ledger: Ledger,
        source: ClusterSource,
        binder: Binder,
        *,
        config: SchedulerConfig,
        settings: LeaderSettings,
    ) -> None:
        self._ledger, self._source, self._binder = ledger, source, binder
        self._config, self._settings = config, settings
        self._token = ""
        self._next_sweep = 0.0

    async def run(self) -> None:
        """Take the lease, or keep it, and do what has to be done; for ever."""
        while True:
            try:
                await self._turn()
            except LostLead:
                self._token = ""
            except (LedgerUnavailable, ClusterUnavailable) as error:
                log.warning("leader: %s", error)
            await asyncio.sleep(self._settings.renew_every.total_seconds())

    async def resign(self) -> None:
        """Let another replica lead at once."""
        if self._token:
            try:
                await self._ledger.drop_lease(token=self._token)
            except LedgerUnavailable:
                return

    async def _turn(self) -> None:
        took_over = not self._token
        token = self._token or secrets.token_hex(8)
        await self._renew(token)
        leader = Leadership(token)
        guard = await self._ledger.look()
        if guard.state == "UNBUILT":
            await self._build(leader)
        elif guard.state == "SUSPECT" or took_over:
            await self._put_all(leader)
            await self._ledger.settle_ledger(leader)
        self._token = token
        if time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + self._settings.sweep_every.total_seconds()
            await self._sweep()

    async def _renew(self, token: str) -> None:
        lead, _ = await self._ledger.take_lease(
            holder=self._settings.replica, token=token, lifetime=self._settings.lease_lifetime
        )
        if lead is not Lead.LEADER:
            raise LostLead

    async def _build(self, leader: Leadership) -> None:
        building = await self._ledger.begin_build(leader)
        if building is None:
            raise LostLead
        await self._put_all(building)
        if await self._ledger.publish_build(building) is not Lead.PUBLISHED:
            raise LostLead
        log.info("leader: the ledger is built")

    async def _put_all(self, leader: Leadership) -> None:
        """Every node, then every pod, as the cluster has them now."""
        nodes, pods = await self._source.list_nodes(), await self._source.list_pods()
        await self._in_chunks(
            leader,
            [
                self._ledger.put_node(
                    node,
                    capacity=self._config.node_config(node.name).capacity(node.allocatable),
                    config_version=self._settings.config_version,
                    leader=leader,
                )
                for node in nodes
            ],
        )
        ignored = self._config.ignored_namespaces
        await self._in_chunks(
            leader,
            [
                self._ledger.put_pod(pod, leader=leader, ignored=pod.namespace in ignored)
                for pod in pods
            ],
        )

    async def _in_chunks(self, leader: Leadership, facts: list[Awaitable[Fact]]) -> None:
        for start in range(0, len(facts), _CHUNK):
            answers: Iterable[Fact] = await asyncio.gather(*facts[start : start + _CHUNK])
            if Fact.FENCED in answers:
                raise LostLead
            await self._renew(leader.token)

    async def _sweep(self) -> None:
        """Settle tentative holds past their deadline: by a live read, never by the clock alone."""
        lapsed = await self._ledger.find_lapsed(limit=SWEEP_LIMIT)
        for uid, row in lapsed.pods:
            try:
                await self._settle(uid, row, lapsed.stamp)
            except ClusterUnavailable as error:
                log.warning("sweep: %s stays %s: %s", row.name, row.stage, error)

    async def _settle(self, uid: PodUid, row: PodRow, stamp: int) -> None:
        order = BindOrder(
            uid=uid,
            name=PodName(row.name),
            node=NodeName(row.node),
            stamp=stamp,
            context={"replica": self._settings.replica, "verb": "sweep"},
        )
        if row.stage == Stage.BINDING:
            await self._binder.settle(order)
            return
        fact = await self._source.read_pod(order.name)
        if fact and fact.uid == uid and fact.node and not fact.finished:
            await self._ledger.confirm_bind(uid, node=fact.node, context=order.context)
        else:
            await self._ledger.unreserve_pod(
                uid, node=order.node, stamp=stamp, context=order.context
            )
