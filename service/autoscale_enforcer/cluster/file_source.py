"""A cluster out of a file, as `kubectl get nodes,pods,virtualmachines -A -o json` prints it.

Binding happens in the loaded copy. So that every replica has the same copy, the Bindings are kept
in the ledger's Redis, where the first one for a pod counts, as it does at an API server; pods
that the file lacks become known from the requests that carry them.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from autoscale_enforcer.cluster.source import Bound
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable
from autoscale_enforcer.ledger.kept import unpack_fact
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.objects.listing import ClusterListing
from autoscale_enforcer.objects.shapes import VmObject


class FileSource:
    """The cluster that a file describes."""

    is_shared_by_ledger = True

    def __init__(self, listing: ClusterListing, ledger: Ledger, *, without_pods: bool) -> None:
        self._listing, self._ledger = listing, ledger
        pods = [] if without_pods else listing.pods
        self._pods = {pod.full_name: pod for pod in pods}

    async def read_node(self, name: NodeName) -> NodeFact | None:
        """The node of the file."""
        return next((node for node in self._listing.nodes if node.name == name), None)

    async def facts_on(self, node: NodeName) -> list[PodFact]:
        """The file's pods on that node."""
        return [pod for pod in await self.list_pods() if pod.node == node]

    async def read_pod(self, name: PodName) -> PodFact | None:
        """The pod of the file, or one that a request has brought, with its Binding."""
        return (await self.read_pods({name}))[name]

    async def read_pods(self, names: AbstractSet[PodName]) -> dict[PodName, PodFact | None]:
        """Each as `read_pod` has it."""
        known = {name: self._pods.get(name) or await self._brought(name) for name in names}
        bindings = await self._bindings()
        return {
            name: pod and replace(pod, node=pod.node or bindings.get(pod.uid))
            for name, pod in known.items()
        }

    async def pods_on(self, node: NodeName) -> set[PodUid]:
        """UIDs of the file's pods on that node and of those bound since."""
        bindings = await self._bindings()
        listed = {p.uid for p in self._pods.values() if p.node == node and not p.finished}
        return listed | {uid for uid, bound in bindings.items() if bound == node}

    async def virtual_machine(self, namespace: str, name: str) -> VmObject | None:
        """The VirtualMachine of the file."""
        return self._listing.vms.get((namespace, name))

    async def bind(
        self, uid: PodUid, name: PodName, *, node: NodeName, resource_version: str
    ) -> Bound:
        """Bind in the shared copy, under the rules of an API server."""
        pod = await self.read_pod(name)
        if pod is None or pod.uid != uid or pod.deleting or pod.finished or pod.node:
            return Bound.UNCLEAR
        if resource_version not in ("", "-", pod.resource_version):
            return Bound.OTHER_VERSION
        try:
            bound = await self._ledger.note_binding(uid, node=node)
        except LedgerUnavailable:
            return Bound.UNCLEAR
        return Bound.CREATED if bound == node else Bound.UNCLEAR

    async def outdate_bindings(self, fact: PodFact) -> PodFact | None:
        """Nothing to outdate: a Binding in this copy is over when it is answered."""
        return await self.read_pod(fact.full_name)

    async def list_nodes(self) -> list[NodeFact]:
        """The file's nodes."""
        return self._listing.nodes

    async def list_pods(self) -> list[PodFact]:
        """The file's pods with their Bindings, none where it was loaded without."""
        bindings = await self._bindings()
        return [replace(pod, node=pod.node or bindings.get(pod.uid)) for pod in self._pods.values()]

    async def _brought(self, name: PodName) -> PodFact | None:
        try:
            return unpack_fact(await self._ledger.read_pod(name=name))
        except LedgerUnavailable as error:
            raise ClusterUnavailable(f"the shared copy cannot be read: {error}") from error

    async def _bindings(self) -> dict[PodUid, NodeName]:
        try:
            return await self._ledger.read_bindings()
        except LedgerUnavailable as error:
            raise ClusterUnavailable(f"the shared copy cannot be read: {error}") from error
