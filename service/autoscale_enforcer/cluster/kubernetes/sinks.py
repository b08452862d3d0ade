"""Where the reflectors hand what they hear: one sink for each kind of object."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from autoscale_enforcer.cluster.kubernetes.answers import Action, BadObject, Changed
from autoscale_enforcer.cluster.kubernetes.source import VmKey
from autoscale_enforcer.cluster.kubernetes.world import World
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid, pod_name
from autoscale_enforcer.objects.shapes import MigrationObject, VmObject


class Told(Protocol):
    """Who makes facts of it."""

    world: World

    def put_pod(self, fact: PodFact) -> None:
        """The pod is so."""
        ...

    def delete_pod(self, uid: PodUid, name: PodName) -> None:
        """The pod is gone."""
        ...

    def put_node(self, fact: NodeFact) -> None:
        """The node is so."""
        ...

    def delete_node(self, name: NodeName, uid: str) -> None:
        """The node has left."""
        ...

    def reread_pods_of(self, key: VmKey) -> None:
        """What the VM's pods are worth may have changed."""
        ...

    async def load_nodes(self, listed: Sequence[NodeFact]) -> None:
        """The first nodes of a new ledger."""
        ...

    async def load_pods(self, listed: Sequence[PodFact]) -> None:
        """The first pods of a new ledger."""
        ...

    async def compare_nodes(
        self, listed: Sequence[NodeFact], bad: Sequence[BadObject], version: str
    ) -> None:
        """The nodes are these and the bad ones, and others only if a later read finds them."""
        ...

    async def compare_pods(
        self, listed: Sequence[PodFact], bad: Sequence[BadObject], version: str
    ) -> None:
        """The pods are these and the bad ones, and others only if a later read finds them."""
        ...


class NodeSink:
    """Nodes: their capacity."""

    def __init__(self, owner: Told, *, is_build: bool) -> None:
        self._owner, self._is_build = owner, is_build
        self._bad: list[BadObject] = []

    async def replace(self, items: Sequence[NodeFact], resource_version: str) -> None:
        """All there are, save the bad ones told just before."""
        bad, self._bad = self._bad, []
        if self._is_build:
            self._is_build = False  # a later list is compared with what was built
            await self._owner.load_nodes(items)
        else:
            await _as_cluster_trouble(self._owner.compare_nodes(items, bad, resource_version))

    async def apply(self, event: Changed[NodeFact]) -> None:
        """One has changed."""
        fact = event.object
        if event.action is Action.DELETED:
            self._owner.delete_node(fact.name, fact.uid)
        else:
            self._owner.put_node(fact)

    async def bad(self, found: BadObject) -> None:
        """Its row stays as it is, until it leaves: the reflector has told people."""
        if found.action is None:
            self._bad.append(found)
        elif found.action is Action.DELETED and found.name:
            self._owner.delete_node(NodeName(found.name), found.uid)


class PodSink:
    """Pods: what they hold."""

    def __init__(self, owner: Told, *, is_build: bool) -> None:
        self._owner, self._is_build = owner, is_build
        self._bad: list[BadObject] = []

    async def replace(self, items: Sequence[PodFact], resource_version: str) -> None:
        """All there are, save the bad ones told just before."""
        bad, self._bad = self._bad, []
        if self._is_build:
            self._is_build = False
            await self._owner.load_pods(items)
        else:
            await _as_cluster_trouble(self._owner.compare_pods(items, bad, resource_version))

    async def apply(self, event: Changed[PodFact]) -> None:
        """One has changed."""
        fact = event.object
        if event.action is Action.DELETED:
            self._owner.delete_pod(fact.uid, fact.full_name)
        else:
            self._owner.put_pod(fact)

    async def bad(self, found: BadObject) -> None:
        """A pod that cannot be read keeps its row; its end must be booked all the same."""
        if found.action is None:
            self._bad.append(found)
        elif found.action is Action.DELETED and found.uid:
            self._owner.delete_pod(PodUid(found.uid), pod_name(found.namespace, found.name))


class VmSink:
    """VirtualMachines: what their pods are worth."""

    def __init__(self, owner: Told) -> None:
        self._owner = owner

    async def replace(self, items: Sequence[VmObject], resource_version: str) -> None:
        """All there are."""
        del resource_version
        for key in self._owner.world.replace_vms(items):
            self._owner.reread_pods_of(key)

    async def apply(self, event: Changed[VmObject]) -> None:
        """One has changed; a pod goes with its VM, and tells so itself."""
        gone = event.action is Action.DELETED
        key = self._owner.world.change_vm(event.object, gone=gone)
        if not gone:
            self._owner.reread_pods_of(key)

    async def bad(self, found: BadObject) -> None:
        """The VM stays as it was."""


class MigrationSink:
    """VirtualMachineMigrations: which pods are about to leave."""

    def __init__(self, owner: Told) -> None:
        self._owner = owner

    async def replace(self, items: Sequence[MigrationObject], resource_version: str) -> None:
        """All there are."""
        del resource_version
        for key in self._owner.world.replace_migrations(items):
            self._owner.reread_pods_of(key)

    async def apply(self, event: Changed[MigrationObject]) -> None:
        """One has changed."""
        gone = event.action is Action.DELETED
        key = self._owner.world.change_migration(event.object, gone=gone)
        if key:
            self._owner.reread_pods_of(key)

    async def bad(self, found: BadObject) -> None:
        """The pods it moves count as any others."""


async def _as_cluster_trouble(comparing: Awaitable[None]) -> None:
    """A list that could not be compared is listed again, as after a failed watch."""
    try:
        await comparing
    except LedgerUnavailable as error:
        raise ClusterUnavailable(f"the list cannot be compared: {error}") from error
