"""A live cluster as the service asks it: each answer is a read of now, each change one request."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from autoscale_enforcer.cluster.kubernetes.answers import BareObject, Listing, Reply
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.failures import NotServed
from autoscale_enforcer.cluster.kubernetes.paths import (
    NODES,
    PODS,
    STRATEGIC_MERGE_PATCH,
    VIRTUAL_MACHINES,
    binding_path,
    namespace_path,
    node_path,
    pod_path,
    pod_status_path,
    pods_on_path,
    virtual_machine_path,
)
from autoscale_enforcer.cluster.source import Bound
from autoscale_enforcer.errors import ClusterUnavailable, ObjectError
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid, pod_name
from autoscale_enforcer.model.rows import NO_WORD
from autoscale_enforcer.objects.decode import decode
from autoscale_enforcer.objects.nodes import read_node
from autoscale_enforcer.objects.pods import read_pod
from autoscale_enforcer.objects.shapes import Metadata, NodeObject, PodObject, VmObject
from autoscale_enforcer.objects.vms import vm_owner
from autoscale_enforcer.turns import FullCollections, Turns

log = logging.getLogger(__name__)

T = TypeVar("T")

VmKey = tuple[str, str]
"""Namespace and name."""

ABANDONED = "AutoscaleEnforcerBindAbandoned"
"""Type of the pod condition that outdates every Binding sent before it."""


class KubernetesSource:
    """The cluster behind one API server."""

    is_shared_by_ledger = False

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def cluster_uid(self) -> str:
        """UID of the `kube-system` namespace, by which a cluster is known."""
        found = await _read(self._api.get(namespace_path("kube-system"), BareObject))
        if found is None or found.metadata is None or not found.metadata.uid:
            raise ClusterUnavailable("the namespace kube-system cannot be found")
        return found.metadata.uid

    async def read_node(self, name: NodeName) -> NodeFact | None:
        """The node of that name now; None: there is none."""
        found = await _read(self._api.get(node_path(name), NodeObject))
        return None if found is None else _made(lambda: read_node(found))

    async def read_pod(self, name: PodName) -> PodFact | None:
        """The pod of that name now, with its VM; None: there is none."""
        found = await _read(self._api.get(pod_path(name), PodObject))
        return None if found is None else await _read(self._with_vm(found))

    async def read_pods(self, names: AbstractSet[PodName]) -> dict[PodName, PodFact | None]:
        """These pods now, by one list of all; those that are there and cannot be read left out."""
        vms = await self._all_vms()
        with FullCollections.held_off():
            listing = await self._api.list_all(PODS, PodObject)
            there, bad = await _told_apart(listing, vms, names)
        unnamed = any(not found.name for found in listing.bad)
        return {
            name: there.get(name) for name in names if name in there or not (name in bad or unnamed)
        }

    async def pods_on(self, node: NodeName) -> set[PodUid]:
        """UIDs of the unfinished pods that are on the node now."""
        listing = await self._api.list_all(pods_on_path(node), PodObject)
        # One that cannot be read is there: whoever asks takes the others for gone.
        return {PodUid(found.uid) for found in listing.bad} | {
            PodUid(pod.metadata.uid)
            for pod in listing.items
            if pod.metadata and pod.metadata.uid and not _is_finished(pod)
        }

    async def facts_on(self, node: NodeName) -> list[PodFact]:
        """The pods that are on the node now, those that cannot be read left out.

        All or nothing: a pod whose VM could not be asked for is not left out.
        """
        listing = await self._api.list_all(pods_on_path(node), PodObject)
        facts = []
        for pod in listing.items:
            try:
                facts.append(await self._with_vm(pod))
            except ObjectError:
                continue
        return facts

    async def virtual_machine(self, namespace: str, name: str) -> VmObject | None:
        """The VirtualMachine now; None: there is none, or the cluster knows no such kind."""
        return await _read(self._vm_object(namespace, name))

    async def bind(
        self, uid: PodUid, name: PodName, *, node: NodeName, resource_version: str
    ) -> Bound:
        """One POST of a Binding, with the pod's UID and the version that was judged."""
        namespace, _, own = name.partition("/")
        metadata = {"name": own, "namespace": namespace, "uid": uid}
        if resource_version not in ("", NO_WORD):
            metadata["resourceVersion"] = resource_version
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        reply = await self._api.post(binding_path(name), body)
        if reply.status == 201:
            return Bound.CREATED
        # The only place that hears why, a missing permission included.
        log.warning("bind %s to %s: %d %s", name, node, reply.status, reply.message)
        return Bound.OTHER_VERSION if _is_version_conflict(reply) else Bound.UNCLEAR

    async def outdate_bindings(self, fact: PodFact) -> PodFact | None:
        """One PATCH of the pod's status, whose answer is the pod after it; None: it is gone.

        Raises ClusterUnavailable where nothing proves that earlier Bindings are of no effect.
        """
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": ABANDONED,
            "status": "True",
            "reason": "BindUnclear",
            # A patch that changes nothing raises no version, and times have whole seconds.
            "message": f"Bindings sent before this have no effect ({secrets.token_hex(4)}).",
            "lastTransitionTime": now,
            "lastProbeTime": now,
        }
        body = {"metadata": {"uid": fact.uid}, "status": {"conditions": [condition]}}
        path = pod_status_path(fact.full_name)
        reply = await self._api.patch(path, body, STRATEGIC_MERGE_PATCH)
        if reply.status == 200:
            return await _read(self._with_vm(_made(lambda: decode(reply.body, PodObject))))
        if reply.status in (404, 409, 422):  # gone, or another pod has its name (422)
            found = await self.read_pod(fact.full_name)
            if found is None or found.uid != fact.uid or found.node:
                return found
        raise ClusterUnavailable(f"patch pods/status: {reply.status} {reply.message}")

    async def list_nodes(self) -> list[NodeFact]:
        """Every node that can be read."""
        listing = await self._api.list_all(NODES, NodeObject)
        return await _all_readable(partial(read_node, node) for node in listing.items)

    async def list_pods(self) -> list[PodFact]:
        """Every pod that can be read, with its VM."""
        vms = await self._all_vms()
        with FullCollections.held_off():
            listing = await self._api.list_all(PODS, PodObject)
            return await _all_readable(
                partial(read_pod, pod, vms.get(vm_key(pod))) for pod in listing.items
            )

    async def _all_vms(self) -> dict[VmKey, VmObject]:
        try:
            listing = await self._api.list_all(VIRTUAL_MACHINES, VmObject)
        except NotServed:
            return {}
        return {
            (vm.metadata.namespace or "", vm.metadata.name or ""): vm
            for vm in listing.items
            if vm.metadata
        }

    async def _with_vm(self, pod: PodObject) -> PodFact:
        """ObjectError where the pod cannot be read; a VM that cannot be is the fact's problem."""
        namespace, owner = vm_key(pod)
        fact = read_pod(pod, None)
        # Where the pod's annotation says what the VM has, its object is not needed.
        if not owner or not fact.problem:
            return fact
        try:
            vm = await self._vm_object(namespace, owner)
        except ObjectError:
            return fact
        return read_pod(pod, vm)

    async def _vm_object(self, namespace: str, name: str) -> VmObject | None:
        try:
            return await self._api.get(virtual_machine_path(namespace, name), VmObject)
        except NotServed:
            return None


def vm_key(pod: PodObject) -> VmKey:
    """Namespace and name of the VirtualMachine that a pod runs; an empty name: none."""
    namespace = (pod.metadata.namespace if pod.metadata else None) or ""
    return namespace, vm_owner(pod) or ""


def _is_finished(pod: PodObject) -> bool:
    return pod.status is not None and pod.status.phase in ("Succeeded", "Failed")


def _is_version_conflict(reply: Reply) -> bool:
    """The precondition on the version failed: the pod has changed, and is not bound by this."""
    return reply.status == 409 and "ResourceVersion" in reply.message and "UID" not in reply.message


async def _read(asked: Awaitable[T | None]) -> T | None:
    """ClusterUnavailable for an object that came and cannot be read."""
    try:
        return await asked
    except ObjectError as error:
        raise ClusterUnavailable(str(error)) from error


def _made(make: Callable[[], T]) -> T:
    try:
        return make()
    except ObjectError as error:
        raise ClusterUnavailable(str(error)) from error


async def _told_apart(
    listing: Listing[PodObject], vms: Mapping[VmKey, VmObject], names: AbstractSet[PodName]
) -> tuple[dict[PodName, PodFact], set[PodName]]:
    """Of those names: the pods that can be read, and the names of those that cannot."""
    there, turns = dict[PodName, PodFact](), Turns()
    bad = {pod_name(found.namespace, found.name) for found in listing.bad}
    for pod in listing.items:
        name = _name_of(pod)
        if name in names:
            try:
                there[name] = read_pod(pod, vms.get(vm_key(pod)))
            except ObjectError:
                bad.add(name)
        await turns.pause()
    return there, bad


def _name_of(pod: PodObject) -> PodName:
    metadata = pod.metadata or Metadata()
    return pod_name(metadata.namespace or "", metadata.name or "")


async def _all_readable(makes: Iterable[Callable[[], T]]) -> list[T]:
    """Those that can be read; the reflector that follows such objects tells of the others.

    Other tasks run meanwhile.
    """
    facts, turns = [], Turns()
    for make in makes:
        try:
            facts.append(make())
        except ObjectError:
            continue
        await turns.pause()
    return facts
