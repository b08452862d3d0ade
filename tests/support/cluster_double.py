"""A cluster in memory that keeps an API server's rules, and does what a test tells it to.

Objects are JSON, read by the product's own readers, so a test says them as Kubernetes does:

    cluster.node("n1", cpu="8", mem="32Gi")
    web = cluster.pod("u1", cpu="2")
    cluster.answers_bind(reply_lost)
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from autoscale_enforcer.cluster.source import Bound
from autoscale_enforcer.errors import ClusterUnavailable, ObjectError
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid, pod_name
from autoscale_enforcer.objects.decode import convert
from autoscale_enforcer.objects.nodes import read_node
from autoscale_enforcer.objects.pods import read_pod
from autoscale_enforcer.objects.shapes import NodeObject, PodObject, VmObject
from autoscale_enforcer.objects.vms import vm_owner

Json = dict[str, Any]
Apply = Callable[[], Bound]
"""What the API server does with a Binding, whenever it gets to it."""

BindAnswer = Callable[[Apply], Awaitable[Bound]]


async def reply_lost(apply: Apply) -> Bound:
    """The Binding is stored, its answer never arrives."""
    apply()
    raise ClusterUnavailable("the API gave no answer in time")


async def never_arrives(apply: Apply) -> Bound:
    """The Binding gets lost on its way."""
    raise ClusterUnavailable("the API gave no answer in time")


async def is_refused(apply: Apply) -> Bound:
    """Neither 201 nor a conflict of versions."""
    return Bound.UNCLEAR


def after(change: Callable[[], object]) -> BindAnswer:
    """Something happens to the cluster just before the Binding is looked at."""

    async def answer(apply: Apply) -> Bound:
        change()
        return apply()

    return answer


@dataclass(slots=True)
class Gate:
    """Holds a call: `arrived` once it is there, it goes on when `open` is set."""

    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def passing(self, apply: Apply) -> Bound:
        self.arrived.set()
        await self.open.wait()
        return apply()

    async def losing(self, apply: Apply) -> Bound:
        """As `passing`, and then the answer is lost."""
        await self.passing(apply)
        raise ClusterUnavailable("the API gave no answer in time")


class ClusterDouble:
    """A ClusterSource in memory."""

    def __init__(self, *, is_shared_by_ledger: bool = False) -> None:
        self.is_shared_by_ledger = is_shared_by_ledger
        self.nodes: dict[str, Json] = {}
        self.pods: dict[PodName, Json] = {}
        self.vms: dict[tuple[str, str], Json] = {}
        self.calls: Counter[str] = Counter()
        self.sent: list[tuple[str, str, str]] = []
        """UID, node and resourceVersion of each Binding that was sent."""
        self.down: set[str] = set()
        """Methods that end as ClusterUnavailable."""
        self.hanging: set[str] = set()
        """Methods that give no answer before `recover`."""
        self._recovered = asyncio.Event()
        self.before_list: Callable[[], Awaitable[None]] | None = None
        """Awaited by each list before it reads anything."""
        self._bind_answers: list[BindAnswer] = []
        self._on_their_way: list[Apply] = []
        self._version = 100

    # What a test sets up

    def node(self, name: str, cpu: object = "8", mem: object = "32Gi", **metadata: object) -> Json:
        """A node, or a newer version of it."""
        named = {"name": name, "uid": f"uid-{name}", "resourceVersion": self._next_version()}
        self.nodes[name] = {
            "metadata": {**named, **metadata},
            "status": {"allocatable": {"cpu": cpu, "memory": mem}, "capacity": {"cpu": "999"}},
        }
        return self.nodes[name]

    def pod(self, uid: str, **spec: Any) -> Json:
        """A pod of the cluster, or a newer version of it; words as in `pod_json`."""
        return self.put(pod_json(uid, **spec))

    def put(self, pod: Json) -> Json:
        """Store a pod under a new version, and give it as it is now."""
        stored = copy.deepcopy(pod)
        stored["metadata"]["resourceVersion"] = self._next_version()
        name = pod_name(stored["metadata"]["namespace"], stored["metadata"]["name"])
        self.pods[name] = stored
        return stored

    def vm(self, name: str, resources: Json, **metadata: object) -> Json:
        """A VirtualMachine in namespace `default`."""
        named = {"name": name, "namespace": "default", "resourceVersion": self._next_version()}
        stored = {"metadata": {**named, **metadata}, "spec": {"guest": resources}}
        self.vms["default", name] = stored
        return stored

    def touch(self, name: str) -> Json:
        """A new version of a pod that says the same."""
        return self.put(self.pods[PodName(f"default/{name}")])

    def delete(self, name: str) -> None:
        del self.pods[PodName(f"default/{name}")]

    def where(self, name: str) -> str | None:
        """The node that the pod is bound to."""
        found: str | None = self.pods[PodName(f"default/{name}")]["spec"].get("nodeName")
        return found

    def answers_bind(self, *answers: BindAnswer) -> None:
        """How the next Bindings are answered; those after them by the rules."""
        self._bind_answers.extend(answers)

    async def delayed(self, apply: Apply) -> Bound:
        """A Binding that is still on its way when its caller gives up; `land` brings it in."""
        self._on_their_way.append(apply)
        raise ClusterUnavailable("the API gave no answer in time")

    def recover(self) -> None:
        """What hung goes on, and nothing hangs any more."""
        self.hanging = set()
        self._recovered.set()

    def land(self) -> list[Bound]:
        """The delayed Bindings arrive."""
        landed, self._on_their_way = self._on_their_way, []
        return [apply() for apply in landed]

    # ClusterSource

    async def read_node(self, name: NodeName) -> NodeFact | None:
        await self._called("read_node")
        found = self.nodes.get(name)
        return read_node(convert(found, NodeObject)) if found else None

    async def facts_on(self, node: NodeName) -> list[PodFact]:
        await self._called("facts_on")
        facts = map(self._fact, self.pods.values())
        return [fact for fact in facts if fact.node == node]

    async def read_pod(self, name: PodName) -> PodFact | None:
        await self._called("read_pod")
        found = self.pods.get(name)
        return self._fact(found) if found else None

    async def read_pods(self, names: AbstractSet[PodName]) -> dict[PodName, PodFact | None]:
        await self._called("read_pods")
        found: dict[PodName, PodFact | None] = {}
        for name in names:
            try:
                found[name] = self._fact(self.pods[name]) if name in self.pods else None
            except ObjectError:
                continue
        return found

    async def pods_on(self, node: NodeName) -> set[PodUid]:
        await self._called("pods_on")
        facts = map(self._fact, self.pods.values())
        return {fact.uid for fact in facts if fact.node == node and not fact.finished}

    async def virtual_machine(self, namespace: str, name: str) -> VmObject | None:
        await self._called("virtual_machine")
        found = self.vms.get((namespace, name))
        return convert(found, VmObject) if found else None

    async def bind(
        self, uid: PodUid, name: PodName, *, node: NodeName, resource_version: str
    ) -> Bound:
        await self._called("bind")
        self.sent.append((uid, node, resource_version))

        def apply() -> Bound:
            return self._store_binding(uid, name, node, resource_version)

        answer = self._bind_answers.pop(0) if self._bind_answers else None
        return await answer(apply) if answer else apply()

    async def outdate_bindings(self, fact: PodFact) -> PodFact | None:
        await self._called("outdate_bindings")
        found = self.pods.get(fact.full_name)
        if found is None or found["metadata"]["uid"] != fact.uid:
            return None
        return self._fact(self.put(found))

    async def list_nodes(self) -> list[NodeFact]:
        await self._called("list_nodes")
        if self.before_list:
            await self.before_list()
        return [read_node(convert(node, NodeObject)) for node in self.nodes.values()]

    async def list_pods(self) -> list[PodFact]:
        await self._called("list_pods")
        return [self._fact(pod) for pod in self.pods.values()]

    async def _called(self, method: str) -> None:
        self.calls[method] += 1
        if method in self.down:
            raise ClusterUnavailable(f"the API cannot be reached: {method}")
        if method in self.hanging:
            await self._recovered.wait()
        await asyncio.sleep(0)

    def _fact(self, pod: Json) -> PodFact:
        found = convert(pod, PodObject)
        vm = self.vms.get((pod["metadata"]["namespace"], vm_owner(found) or ""))
        return read_pod(found, convert(vm, VmObject) if vm else None)

    def _store_binding(self, uid: PodUid, name: PodName, node: NodeName, version: str) -> Bound:
        """201, or 404 and 409 as an API server has them."""
        found = self.pods.get(name)
        if found is None or found["metadata"]["uid"] != uid:
            return Bound.UNCLEAR
        if version not in ("", "-", found["metadata"]["resourceVersion"]):
            return Bound.OTHER_VERSION
        if found["spec"].get("nodeName") or found["metadata"].get("deletionTimestamp"):
            return Bound.UNCLEAR
        found["spec"]["nodeName"] = node
        self.put(found)
        return Bound.CREATED

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)


def pod_json(
    uid: str,
    *,
    name: str = "",
    namespace: str = "default",
    cpu: object = "1",
    mem: object = "1Gi",
    node: str = "",
    rv: str = "1",
    phase: str = "",
    metadata: Json | None = None,
    spec: Json | None = None,
) -> Json:
    """A pod object, named as its UID unless told otherwise."""
    requests = {"cpu": cpu, "memory": mem}
    named = {"name": name or uid, "namespace": namespace, "uid": uid, "resourceVersion": rv}
    return {
        "metadata": {**named, **(metadata or {})},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": requests}}],
            **({"nodeName": node} if node else {}),
            **(spec or {}),
        },
        "status": {"phase": phase} if phase else {},
    }


def runs_vm(
    use: object = "1",
    slots: int = 1,
    *,
    most: tuple[object, int] = ("8", 16),
    slot: object = "1Gi",
    autoscaling: bool = True,
    annotations: Json | None = None,
    vm: str = "vm-a",
) -> Json:
    """Metadata of a VM runner pod, for `pod_json`; it uses so much CPU and so many slots."""
    resources = vm_resources(use, slots, most=most, slot=slot)
    given = {"vm.neon.tech/resources": resources} if annotations is None else annotations
    return {
        "labels": {"autoscaling.neon.tech/enabled": "true"} if autoscaling else {},
        "annotations": {k: v if isinstance(v, str) else json.dumps(v) for k, v in given.items()},
        "ownerReferences": [
            {"kind": "VirtualMachine", "apiVersion": "vm.neon.tech/v1", "name": vm}
        ],
    }


def vm_resources(
    use: object = "1", slots: int = 1, *, most: tuple[object, int] = ("8", 16), slot: object = "1Gi"
) -> Json:
    """What a VM is plugged with, as its object and its pod's annotation say."""
    return {
        "cpus": {"min": "250m", "use": use, "max": most[0]},
        "memorySlots": {"min": 1, "use": slots, "max": most[1]},
        "memorySlotSize": slot,
    }
