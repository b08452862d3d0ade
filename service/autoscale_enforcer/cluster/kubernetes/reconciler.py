"""Turns what the API server says into facts: lists, watches, and what a list lacks.

Runs at the leader only. After a gap of any kind there is a list, and a list is compared with the
whole ledger; what it lacks is gone only when a read begun later says so too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

from autoscale_enforcer.cluster.kubernetes.answers import BadObject, BareObject
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.comparing import Comparison
from autoscale_enforcer.cluster.kubernetes.loading import FirstPods
from autoscale_enforcer.cluster.kubernetes.paths import MIGRATIONS, NODES, PODS, VIRTUAL_MACHINES
from autoscale_enforcer.cluster.kubernetes.pump import FactPump
from autoscale_enforcer.cluster.kubernetes.reflector import Reflector, ReflectorSettings
from autoscale_enforcer.cluster.kubernetes.review import Review
from autoscale_enforcer.cluster.kubernetes.sinks import (
    MigrationSink,
    NodeSink,
    PodSink,
    VmSink,
)
from autoscale_enforcer.cluster.kubernetes.source import KubernetesSource
from autoscale_enforcer.cluster.kubernetes.telling import Telling
from autoscale_enforcer.cluster.kubernetes.world import World
from autoscale_enforcer.cluster.upkeep import recount
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.errors import ClusterUnavailable
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Keep
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.ids import PodUid
from autoscale_enforcer.objects.nodes import read_node
from autoscale_enforcer.objects.shapes import (
    MigrationObject,
    NodeObject,
    PodObject,
    VmObject,
)
from autoscale_enforcer.turns import FullCollections, Turns

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilerSettings:
    """How much the watches are trusted."""

    compare_every: timedelta = timedelta(minutes=5)
    """Between full compares: what a watch has missed is repaired by then."""
    silence: timedelta = timedelta(seconds=330)
    """Of a watch, after which this replica sees nothing: a little more than two of the longest, one
    that is given up and a quiet one that proves itself only by its end."""
    list_silence: timedelta = timedelta(seconds=65)
    """Of a list that is waited for: a little more than one page may take."""
    news_takes: timedelta = timedelta(seconds=1)
    """From a change to the ledger at most, but for one in a hundred: a compare that goes on beside
    the watches leaves them so long to tell what it has found."""
    watches: ReflectorSettings = field(default_factory=ReflectorSettings)


class Reconciler(Telling):
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
        super().__init__(ledger, config, replica=replica)
        self._api, self._source = api, source
        self._settings = settings
        self._compared_at = 0.0
        self._compared_with = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._reflectors: list[Reflector[Any, Any]] = []
        self._comparison = Comparison(api, ledger, config, self)
        self._first_pods = FirstPods(ledger, is_ignored=self.is_ignored)
        self._is_following = False

    # What the leader asks

    async def reach(self) -> None:
        """One page of a list."""
        async with aclosing(self._api.list_pages(NODES, BareObject, limit=1)) as pages:
            await anext(pages)

    async def build(self, leader: Leadership) -> None:
        """Load everything beside the books; later changes wait for `go_live`."""
        config = self._config.version
        await self._claim()
        with FullCollections.held_off():
            await self._follow(is_build=True)
            await self._until(self._load(leader))
        self._compared_at, self._compared_with = time.monotonic(), config

    async def _load(self, leader: Leadership) -> None:
        """The first list, then what came since: the ledger takes the newer of the two."""
        for fact in await self._first_pods.load(leader):
            self.put_pod(fact)
        await self.pump.flush(leader)

    def go_live(self, leader: Leadership) -> None:
        """Carry facts to the books from now on."""
        self._tasks.append(asyncio.create_task(self.pump.run(leader), name="fact pump"))

    async def compare(self, leader: Leadership) -> None:
        """Make the ledger say what lists say; what is followed already goes on being told.

        One that was broken off is due still.
        """
        config = self._config.version
        self._compared_at = float("-inf")
        if self._is_following:
            await self._until(self._review())
        else:
            await self._follow(is_build=False)
            self.go_live(leader)
        await self._until(self.pump.drained())
        # After what is mended: a pod's row that was false has left its node's sums false.
        self.repaired += await recount(self._ledger, leader, context=self._mending)
        self._compared_at, self._compared_with = time.monotonic(), config

    def is_due(self) -> bool:
        """The config is another than at the last whole compare, or that one is long ago."""
        age = time.monotonic() - self._compared_at
        is_old = age > self._settings.compare_every.total_seconds()
        return is_old or self._compared_with != self._config.version

    def readings(self) -> dict[str, float]:
        """For metrics: how well the cluster is followed. Empty of ages while it is not."""
        ages = [each.age_of_last_event for each in self._reflectors]
        return {
            **({"watch_age_seconds": max(ages)} if ages else {}),
            "watch_relists": sum(each.relists for each in self._reflectors),
            "bad_objects": sum(each.bad_objects for each in self._reflectors),
            "facts_waiting": len(self.pump) + len(self._first_pods),
            "repaired_rows": self.repaired,
            "pending_pods": len(self.pending),
        }

    async def stop(self) -> None:
        """Follow nothing any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks, self._reflectors, self._is_following = [], [], False
        self._first_pods.forget()

    def check(self) -> None:
        """Raises what ended a watch or the pump, and ClusterUnavailable for a silent watch."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
        for reflector in self._reflectors:
            age, settings = reflector.age_of_last_event, self._settings
            limit = settings.silence if reflector.synced.is_set() else settings.list_silence
            if age > limit.total_seconds():
                raise ClusterUnavailable(f"a watch is silent for {age:.0f} s")

    async def _claim(self) -> None:
        """Lost books have lost whose they were, too."""
        cluster = await self._source.cluster_uid()
        keep, owner = await self._ledger.claim(cluster)
        if keep is Keep.FOREIGN:
            raise ClusterUnavailable(f"the ledger is that of the cluster {owner} by now")

    # Following

    async def _follow(self, *, is_build: bool) -> None:
        await self.stop()
        # `pending` stays until there is a list: room that comes back meanwhile is still waited for.
        self.pump, self.world = FactPump(), World()
        crd = replace(self._settings.watches, may_be_absent=True)
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
            settings=self._settings.watches,
        )
        pods = Reflector(
            self._api,
            path=PODS,
            kind=PodObject,
            read=self.world.read_pod,
            sink=PodSink(self, is_build=is_build),
            settings=self._settings.watches,
        )
        for first in ((vms, migrations), (nodes,), (pods,)):
            for reflector in first:
                self._reflectors.append(reflector)
                self._tasks.append(asyncio.create_task(reflector.run(), name="reflector"))
            await self._until(asyncio.gather(*(each.synced.wait() for each in first)))
        self._is_following = True

    async def _review(self) -> None:
        """Compare beside the watches; again where a list or a read fails, for they go on."""
        began, settings = time.monotonic(), self._settings
        while True:
            review = Review(
                self._api, self._ledger, self._config, self, news_takes=settings.news_takes
            )
            try:
                return await review.run()
            except ClusterUnavailable as error:
                if time.monotonic() - began > settings.list_silence.total_seconds():
                    raise
                log.warning("a compare begins again: %s", error)
                await asyncio.sleep(settings.watches.pause.total_seconds())

    async def _until(self, wanted: Awaitable[object]) -> None:
        """Wait for it; raises what ended a watch or the pump meanwhile."""
        waiting = asyncio.ensure_future(wanted)
        try:
            while not waiting.done():
                await asyncio.wait(
                    {waiting, *self._tasks}, timeout=1, return_when=asyncio.FIRST_COMPLETED
                )
                self.check()
            waiting.result()
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    # First lists

    async def load_nodes(self, listed: Sequence[NodeFact]) -> None:
        """The first nodes of a new ledger."""
        turns = Turns()
        for fact in listed:
            self.put_node(fact)
            await turns.pause()

    async def load_pods(self, listed: Sequence[PodFact]) -> None:
        """The first pods of a new ledger; finished ones hold nothing."""
        self.pending, turns, first = set(), Turns(), list[PodFact]()
        for fact in listed:
            if not fact.finished:
                first.append(self.read_again(fact))
                self.wait_for_room(first[-1])
            await turns.pause()
        self._first_pods.take(first)

    async def compare_nodes(
        self, listed: Sequence[NodeFact], bad: Sequence[BadObject], version: str
    ) -> None:
        """Make the ledger's nodes those of the list."""
        await self._comparison.nodes(listed, bad, version)

    async def compare_pods(
        self, listed: Sequence[PodFact], bad: Sequence[BadObject], version: str
    ) -> None:
        """Make the ledger's pods those of the list."""
        uids = {fact.uid for fact in listed} | {PodUid(found.uid) for found in bad}
        self.world.keep_pods(uids)
        self.pending &= uids
        await self._comparison.pods(listed, bad, version)


def _as_it_is(found: T) -> T:
    return found
