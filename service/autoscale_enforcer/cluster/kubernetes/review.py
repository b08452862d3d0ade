"""Compares the ledger with lists while the watches go on telling.

A list is a moment that the watches have passed or are about to reach. So what differs may be news
on its way: it is told only after the watches have had time to tell it themselves, and never in the
place of what they have said since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from datetime import timedelta
from typing import Protocol

from autoscale_enforcer.cluster.kubernetes.answers import K
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.comparing import Comparison, Mends
from autoscale_enforcer.cluster.kubernetes.failures import NotServed
from autoscale_enforcer.cluster.kubernetes.lists import drop, read_whole
from autoscale_enforcer.cluster.kubernetes.paths import MIGRATIONS, NODES, PODS, VIRTUAL_MACHINES
from autoscale_enforcer.cluster.kubernetes.source import VmKey
from autoscale_enforcer.cluster.kubernetes.world import World
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.objects.nodes import read_node
from autoscale_enforcer.objects.shapes import MigrationObject, NodeObject, PodObject, VmObject
from autoscale_enforcer.turns import FullCollections


class Followed(Mends, Protocol):
    """Who follows the cluster, and tells the ledger."""

    world: World

    def is_told(self, key: Hashable) -> bool:
        """Something newer of that object is on its way to the ledger."""
        ...

    def reread_pods_of(self, key: VmKey) -> None:
        """What the VM's pods are worth may have changed."""
        ...


class Review:
    """One compare. Raises ClusterUnavailable, LedgerUnavailable and ClusterWentBack."""

    def __init__(
        self,
        api: KubeApi,
        ledger: Ledger,
        config: LiveConfig,
        followed: Followed,
        *,
        news_takes: timedelta,
    ) -> None:
        self._api, self._followed = api, followed
        self._world = followed.world
        self._late = _Late(followed)
        self._comparison = Comparison(api, ledger, config, self._late)
        self._news_takes = news_takes.total_seconds()

    async def run(self) -> None:
        """Find what differs, and have it told."""
        await self._vms()
        nodes = await read_whole(self._api, NODES, NodeObject, read_node)
        await self._comparison.nodes(nodes.items, nodes.bad, nodes.resource_version)
        await self._tell_late()
        with FullCollections.held_off():
            # Without remembering them: one may be gone by now, as the watch has told.
            pods = await read_whole(self._api, PODS, PodObject, self._world.look_at)
            await self._comparison.pods(pods.items, pods.bad, pods.resource_version)
            await drop(pods)
        await self._tell_late()

    async def _vms(self) -> None:
        """What pods are read with comes before the pods."""
        world = self._world
        vms, migrations = world.vm_versions(), world.migration_versions()
        changed = world.merge_vms(await self._those_served(VIRTUAL_MACHINES, VmObject), vms)
        changed |= world.merge_migrations(
            await self._those_served(MIGRATIONS, MigrationObject), migrations
        )
        for key in changed:
            self._followed.reread_pods_of(key)

    async def _those_served(self, path: str, kind: type[K]) -> Iterable[K]:
        try:
            return (await read_whole(self._api, path, kind, _as_it_is)).items
        except NotServed:
            return ()

    async def _tell_late(self) -> None:
        if self._late.waiting:
            await asyncio.sleep(self._news_takes)
            self._late.tell()


class _Late:
    """Has what is surely no news told at once, and keeps the rest until `tell`."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self.waiting: dict[Hashable, Callable[[], None]] = {}

    def tell(self) -> None:
        """All that was kept, but of objects that more has been said of since."""
        waiting, self.waiting = self.waiting, {}
        for key, tell in waiting.items():
            if not self._followed.is_told(key):
                tell()

    def mend_pod(self, fact: PodFact, *, is_news: bool) -> None:
        """The pod is so, and the ledger says other."""
        self._take(
            ("pod", fact.uid),
            lambda: self._followed.mend_pod(fact, is_news=is_news),
            is_news=is_news,
        )

    def mend_deleted_pod(self, uid: PodUid, name: PodName) -> None:
        """The pod is gone, and the ledger has it."""
        self._take(("pod", uid), lambda: self._followed.mend_deleted_pod(uid, name), is_news=True)

    def mend_node(self, fact: NodeFact, *, is_news: bool) -> None:
        """The node is so, and the ledger says other."""
        self._take(
            ("node", fact.name),
            lambda: self._followed.mend_node(fact, is_news=is_news),
            is_news=is_news,
        )

    def mend_deleted_node(self, name: NodeName, uid: str) -> None:
        """The node has left, and the ledger has it."""
        self._take(
            ("node", name), lambda: self._followed.mend_deleted_node(name, uid), is_news=True
        )

    def read_again(self, fact: PodFact) -> PodFact:
        """The pod of the list, as it is by now."""
        return self._followed.read_again(fact)

    def wait_for_room(self, fact: PodFact) -> None:
        """The watch has told that already."""

    def _take(self, key: Hashable, tell: Callable[[], None], *, is_news: bool) -> None:
        if is_news:
            self.waiting[key] = tell
        elif not self._followed.is_told(key):
            tell()


def _as_it_is(found: K) -> K:
    return found
