"""Turns what the API server says into facts: lists, watches, and what a list lacks.

Runs at the leader only. After a gap of any kind there is a list, and a list is compared with the
whole ledger; what it lacks is gone only when a read begun later says so too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from autoscale_enforcer.cluster.kubernetes.answers import BareObject
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.paths import MIGRATIONS, NODES, PODS, VIRTUAL_MACHINES
from autoscale_enforcer.cluster.kubernetes.pump import FactPump
from autoscale_enforcer.cluster.kubernetes.reflector import Reflector, ReflectorSettings
from autoscale_enforcer.cluster.kubernetes.sinks import (
    MigrationSink,
    NodeSink,
    PodSink,
    VmSink,
)
from autoscale_enforcer.cluster.kubernetes.source import KubernetesSource
from autoscale_enforcer.cluster.kubernetes.world import VmKey, World
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.errors import ClusterUnavailable
from autoscale_enforcer.ledger.ledger import Context, Leadership, Ledger
from autoscale_enforcer.ledger.outcomes import Fact
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import NO_WORD, PodRow, Stage, said_row
from autoscale_enforcer.objects.nodes import read_node
from autoscale_enforcer.objects.shapes import (
    MigrationObject,
    NodeObject,
    PodObject,
    VmObject,
)

log = logging.getLogger(__name__)

READ_ONE_BY_ONE = 100
"""Up to so many missing objects are read each; of more, one list tells."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilerSettings:
    """How much the watches are trusted."""

    compare_every: timedelta = timedelta(minutes=5)
    """Between full compares: what a watch has missed is repaired by then."""
    silence: timedelta = timedelta(seconds=330)
    """Of a watch, after which this replica sees nothing: a little more than the longest watch."""


class Reconciler:
    """Follows one cluster for one leadership at a time."""

    def __init__(
        self,
        api: KubeApi,
        source: KubernetesSource,
        ledger: Ledger,
        config: LiveConfig,
        *,
        replica: str,
        settings: ReconcilerSettings,
    ) -> None:
        self._api, self._source, self._ledger, self._config = api, source, ledger, config
        self._context: Context = {"replica": replica, "verb": "watch"}
        self._settings = settings
        self._compared_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._reflectors: list[Reflector[Any, Any]] = []
        self._begin_anew()
        self.repaired = 0
        """Rows that a compare found to differ from the cluster."""

    # What the leader asks

    async def build(self, leader: Leadership) -> None:
        """Load everything beside the books; later changes wait for `go_live`."""
        self._config.changed.clear()
        await self._follow(is_build=True)
        await self._until(self.pump.flush(leader))
        self._compared_at = time.monotonic()

    def go_live(self, leader: Leadership) -> None:
        """Carry facts to the books from now on."""
        self._tasks.append(asyncio.create_task(self.pump.run(leader), name="fact pump"))

    async def compare(self, leader: Leadership) -> None:
        """List everything anew, and make the ledger say what the lists say."""
        self._config.changed.clear()
        await self._follow(is_build=False)
        self.go_live(leader)
        await self._until(self.pump.drained())
        self._compared_at = time.monotonic()

    def is_due(self) -> bool:
        """The config has changed, or the last compare is long ago."""
        age = time.monotonic() - self._compared_at
        return self._config.changed.is_set() or age > self._settings.compare_every.total_seconds()

    async def stop(self) -> None:
        """Follow nothing any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def check(self) -> None:
        """Raises what ended a watch or the pump, and ClusterUnavailable for a silent watch."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
        for reflector in self._reflectors:
            if reflector.age_of_last_event > self._settings.silence.total_seconds():
                raise ClusterUnavailable(
                    f"a watch is silent for {reflector.age_of_last_event:.0f} s"
                )

    # Following

    def _begin_anew(self) -> None:
        self.pump, self.world = FactPump(), World()
        self.pending: set[PodUid] = set()
        """Unbound pods, as the watch has them."""

    async def _follow(self, *, is_build: bool) -> None:
        await self.stop()
        self._begin_anew()
        crd = ReflectorSettings(may_be_absent=True)
        # What pods are read with comes before the pods.
        vms = Reflector(
            self._api,
            path=VIRTUAL_MACHINES,
            kind=VmObject,
            read=_as_it_is,
            sink=VmSink(self),
            settings=crd,
        )
        migrations = Reflector(
            self._api,
            path=MIGRATIONS,
            kind=MigrationObject,
            read=_as_it_is,
            sink=MigrationSink(self),
            settings=crd,
        )
        nodes = Reflector(
            self._api,
            path=NODES,
            kind=NodeObject,
            read=read_node,
            sink=NodeSink(self, is_build=is_build),
        )
        pods = Reflector(
            self._api,
            path=PODS,
            kind=PodObject,
            read=self.world.read_pod,
            sink=PodSink(self, is_build=is_build),
        )
        self._reflectors = [vms, migrations, nodes, pods]
        for first in ((vms, migrations), (nodes,), (pods,)):
            for reflector in first:
                self._tasks.append(asyncio.create_task(reflector.run(), name="reflector"))
            await self._until(asyncio.gather(*(each.synced.wait() for each in first)))

    async def _until(self, wanted: Awaitable[object]) -> None:
        """Wait for it; raises what ended a watch or the pump meanwhile."""
        waiting = asyncio.ensure_future(wanted)
        try:
            while not waiting.done():
                await asyncio.wait(
                    {waiting, *self._tasks}, timeout=1, return_when=asyncio.FIRST_COMPLETED
                )
                self.check()
        finally:
            waiting.cancel()

    # Facts

    def put_pod(self, fact: PodFact) -> None:
        """Tell the ledger of a pod."""
        if fact.node is None and not fact.finished and not fact.deleting:
            self.pending.add(fact.uid)
        else:
            self.pending.discard(fact.uid)
        self.pump.put(("pod", fact.uid), partial(self._put_pod, fact))

    def delete_pod(self, uid: PodUid, name: PodName) -> None:
        """Tell the ledger that a pod is gone."""
        self.pending.discard(uid)
        self.pump.put(("pod", uid), partial(self._delete_pod, uid, name))

    def put_node(self, fact: NodeFact) -> None:
        """Tell the ledger of a node."""
        self.pump.put(("node", fact.name), partial(self._put_node, fact))

    def delete_node(self, name: NodeName, uid: str) -> None:
        """Tell the ledger that a node has left."""
        self.pump.put(("node", name), partial(self._delete_node, name, uid))

    def reread_pods_of(self, key: VmKey) -> None:
        """The VM has changed: so may have what its pods are worth."""
        for fact in self.world.pods_of(key):
            self.put_pod(fact)

    async def _put_pod(self, fact: PodFact, leader: Leadership) -> Fact:
        return await self._ledger.put_pod(
            fact, leader=leader, ignored=self.is_ignored(fact), context=self._context
        )

    async def _delete_pod(self, uid: PodUid, name: PodName, leader: Leadership) -> Fact:
        return await self._ledger.delete_pod(uid, name=name, leader=leader, context=self._context)

    async def _put_node(self, fact: NodeFact, leader: Leadership) -> Fact:
        return await self._ledger.put_node(
            fact,
            capacity=self._config.current.node_config(fact.name).capacity(fact.allocatable),
            config_version=self._config.version,
            leader=leader,
            context=self._context,
        )

    async def _delete_node(self, name: NodeName, uid: str, leader: Leadership) -> Fact:
        return await self._ledger.delete_node(name, uid=uid, leader=leader, context=self._context)

    def is_ignored(self, fact: PodFact) -> bool:
        """Its namespace is one that grants take no notice of."""
        return fact.namespace in self._config.current.ignored_namespaces

    # Comparing

    async def compare_nodes(self, listed: Sequence[NodeFact]) -> None:
        """Make the ledger's nodes those of the list."""
        await self._ledger.mirror.refresh()
        known = {n: r.uid for n, r in self._ledger.mirror.nodes.items() if not r.absent}
        for fact in listed:
            row = self._ledger.mirror.nodes.get(fact.name)
            known.pop(fact.name, None)
            said = (fact.resource_version, self._config.version or NO_WORD)
            if row is None or row.absent or (row.rv, row.config) != said:
                self.put_node(fact)
        for name, uid in known.items():
            now = await self._source.read_node(name)
            if now is None or now.uid != uid:
                self.delete_node(name, uid)
            if now:
                self.put_node(now)

    async def compare_pods(self, listed: Sequence[PodFact]) -> None:
        """Make the ledger's pods those of the list."""
        rows = await self._ledger.scan_pods()
        for fact in listed:
            row = rows.pop(fact.uid, None)
            if fact.finished and row is None:
                continue
            if row is None or not _says(row, fact, ignored=self.is_ignored(fact)):
                self.repaired += row is not None and row.rv == fact.resource_version
                self.put_pod(fact)
            elif fact.node is None and not fact.deleting:
                self.pending.add(fact.uid)
        await self._settle_missing(rows)

    async def _settle_missing(self, rows: dict[PodUid, PodRow]) -> None:
        """Pods that the list lacks: bound while it was read, or gone. A later read tells."""
        if len(rows) > READ_ONE_BY_ONE:
            listing = await self._api.list_all(PODS, BareObject)
            there = {item.metadata.uid for item in listing.items if item.metadata}
            there |= {bad.uid for bad in listing.bad}
            rows = {uid: row for uid, row in rows.items() if uid not in there}
            for uid, row in rows.items():
                self.delete_pod(uid, PodName(row.name))
            return
        for uid, row in rows.items():
            fact = await self._source.read_pod(PodName(row.name))
            if fact and fact.uid == uid:
                self.put_pod(fact)
            else:
                self.delete_pod(uid, PodName(row.name))


def _as_it_is(found: T) -> T:
    return found


def _says(row: PodRow, fact: PodFact, *, ignored: bool) -> bool:
    """The row says all that the fact says: booking it again would change nothing."""
    said = said_row(fact, ignored=ignored)
    stage = Stage.PENDING if fact.node is None else Stage.BOUND
    place = fact.node or NO_WORD
    if fact.finished or (row.stage, row.node) != (stage, place):
        return False
    alike = ("rv", "vm_rv", "vm", "scaled", "broken", "ignored", "moving", "use_cpu", "use_mem")
    more = ("max_cpu", "max_mem", "over_cpu", "over_mem")
    return all(getattr(row, name) == getattr(said, name) for name in (*alike, *more))
