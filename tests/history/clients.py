"""One client of the workload: the pods and the VM that it owns, and what it makes of answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp

from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.objects.quantity import cpu_milli, mem_bytes
from tests.history.answers import Answer, end_bind, end_reserve, give_up
from tests.history.record import Call, NodeSeen, Op, Recorder

Json = dict[str, Any]

GIB = 1 << 30
NAMESPACE = "history"
UNIT = Resources(250, GIB)
"""What VMs grow by, and what they begin with."""
MOST = Resources(8 * UNIT.cpu, 8 * UNIT.mem)
"""The most that a VM may have."""
PODS_AT_ONCE = 3
PERSISTENCE = 0.9
"""How likely a client is to ask again where it was given no clear answer."""
PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds before it does."""


class Cluster(Protocol):
    """Where pods come from and go to, when that is more than a file."""

    async def create(self, pod: Json) -> None: ...

    async def delete(self, namespace: str, name: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What the clients talk to. All lists go by replica."""

    extenders: Sequence[str]
    """URLs without a verb, such as `http://127.0.0.1:10298/extender`."""
    agents: Sequence[str]
    admins: Sequence[str]
    nodes: Mapping[str, Resources]
    """Capacities."""
    cluster: Cluster | None = None
    """None: pods are known from requests only, and none is deleted."""
    holders: Sequence[str] = ()
    """More extenders, of the first release. They may hold and release and must not bind: their
    Binding binds nothing. And they take a release that comes too late to be one for done.
    """
    call_timeout: float = 5.0
    """Seconds after which a client gives a call up; as kube-scheduler's `httpTimeout`."""


@dataclass(slots=True)
class Pod:
    """A plain pod, as its client knows it."""

    document: Json
    need: Resources
    node: str = ""
    is_bound: bool = False

    @property
    def uid(self) -> str:
        return str(self.document["metadata"]["uid"])

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def reference(self) -> Json:
        return {"Namespace": NAMESPACE, "Name": self.name, "UID": self.uid}


@dataclass(slots=True)
class Client:
    """Does one thing at a time, each at a replica of its choice."""

    number: int
    seed: int
    targets: Targets
    http: aiohttp.ClientSession
    records: Recorder
    vm_uid: str
    vm_node: str
    permit: Resources = UNIT
    pods: list[Pod] = field(default_factory=list)
    random: random.Random = field(init=False)
    _made: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed}/{self.number}")

    async def run(self, until: Callable[[], bool]) -> None:
        """Until it is time, one random act after the other."""
        while not until():
            await self.act()

    async def act(self) -> None:
        """One act: mostly of a pod's life, a third of them the VM's."""
        draw = self.random.random()
        if draw < 0.35:
            await self.request()
        elif draw < 0.355:
            await self.read()
        elif len(self.pods) < PODS_AT_ONCE:
            await self.begin_pod()
        else:
            await self.live(self.random.choice(self.pods))

    async def live(self, pod: Pod) -> None:
        """The next thing that happens to a pod."""
        if pod.is_bound:
            await self.end_pod(pod)
            return
        do = self.random.choices(
            [self.filter, self.reserve, self.unreserve, self.bind, self.end_pod],
            weights=[20, 40, 20, 15 if self.targets.cluster else 1, 5],
        )[0]
        await do(pod)

    # A pod's life

    async def begin_pod(self) -> None:
        """A new pod, which the cluster knows first."""
        self._made += 1
        need = Resources(self.random.randint(1, 8) * 125, self.random.randint(1, 8) * GIB // 2)
        pod = Pod(plain_pod(f"p-{self.seed}-{self.number}-{self._made}", need), need)
        if self.targets.cluster:
            await self.targets.cluster.create(pod.document)
        self.pods.append(pod)
        await self.filter(pod)

    async def filter(self, pod: Pod) -> None:
        """Ask about some nodes, and remember nothing: reserve decides."""
        nodes = self.random.sample(sorted(self.targets.nodes), min(4, len(self.targets.nodes)))
        call = self.invoke(Op.FILTER, pod)
        answer = await self.extend("filter", {"Pod": pod.document, "NodeNames": nodes})
        if answer.status != 200:
            give_up(call, answer)
            return
        said = answer.json
        if said["Error"]:
            call.refused(said["Error"], replica=answer.replica)
            return
        seen = dict.fromkeys(said["NodeNames"] or [], "")
        seen |= said["FailedNodes"] | said["FailedAndUnresolvableNodes"]
        call.saw(seen, replica=answer.replica)

    async def reserve(self, pod: Pod) -> None:
        """Hold room, or move there; now and then the call is sent twice at once."""
        node = self.some_node(pod, stay=0.3)
        times = 2 if self.random.random() < 0.1 else 1

        async def ask() -> bool:
            calls = [self._reserve(pod, node) for _ in range(times)]
            return all(await asyncio.gather(*calls))

        await self.until_answered(ask)

    async def _reserve(self, pod: Pod, node: str) -> bool:
        call = self.invoke(Op.RESERVE, pod, node)
        answer = await self.extend("reserve", {"Pod": pod.document, "NodeName": node})
        if end_reserve(call, answer):
            pod.node = node
        return call.is_answered

    async def unreserve(self, pod: Pod) -> None:
        """Release, mostly where it is held."""
        node = self.some_node(pod, stay=0.9)
        await self.until_answered(lambda: self._unreserve(pod, node))

    async def _unreserve(self, pod: Pod, node: str) -> bool:
        call = self.invoke(Op.UNRESERVE, pod, node)
        answer = await self.extend("unreserve", {"Pod": pod.reference, "NodeName": node})
        if answer.status == 200 and answer.url.removesuffix("/unreserve") in self.targets.holders:
            call.unknown("of the first release", replica=answer.replica)
        elif end_reserve(call, answer) and pod.node == node:
            pod.node = ""
        return call.is_answered

    async def bind(self, pod: Pod) -> None:
        """Bind, mostly where it is held."""
        node = self.some_node(pod, stay=0.9)
        await self.until_answered(lambda: self._bind(pod, node))

    async def _bind(self, pod: Pod, node: str) -> bool:
        call = self.invoke(Op.BIND, pod, node)
        body = {
            "PodName": pod.name,
            "PodNamespace": NAMESPACE,
            "PodUID": pod.uid,
            "Node": node,
        }
        answer = await self.extend("bind", body)
        if end_bind(call, answer):
            pod.node, pod.is_bound = node, True
        return call.is_answered

    async def end_pod(self, pod: Pod) -> None:
        """Delete it and wait until the books have heard; without a cluster, leave it alone."""
        self.pods.remove(pod)
        if self.targets.cluster is None:
            return
        gone = self.records.happens(Op.GONE, pod=pod.uid)
        await self.targets.cluster.delete(NAMESPACE, pod.name)
        if await self._is_shown(pod.name, 404):
            gone.done()
        else:
            gone.unknown("the books have not heard of it yet")

    # The VM

    async def request(self) -> None:
        """As the VM's agent: any size that it may have."""
        await self._request(UNIT)

    async def request_more(self) -> None:
        """As the VM's agent: nothing less than it has."""
        await self._request(self.permit)

    async def request_all(self) -> None:
        """As the VM's agent: the most that it may have."""
        await self._request(MOST)

    async def request_least(self) -> None:
        """As the VM's agent: no more than it must have."""
        await self.until_answered(lambda: self._ask_for(UNIT))

    async def _request(self, least: Resources) -> None:
        asked = Resources(
            self.random.randint(least.cpu // UNIT.cpu, MOST.cpu // UNIT.cpu) * UNIT.cpu,
            self.random.randint(least.mem // UNIT.mem, MOST.mem // UNIT.mem) * UNIT.mem,
        )
        await self.until_answered(lambda: self._ask_for(asked))

    async def _ask_for(self, asked: Resources) -> bool:
        call = self.records.invoke(
            Op.REQUEST,
            client=self.number,
            pod=self.vm_uid,
            node=self.vm_node,
            asked=(asked.cpu, asked.mem),
            factor=(UNIT.cpu, UNIT.mem),
            last=(self.permit.cpu, self.permit.mem),
        )
        body = {
            "protoVersion": 7,
            "pod": {"name": self.vm_uid, "namespace": NAMESPACE},
            "computeUnit": _amounts(UNIT),
            "resources": _amounts(asked),
            "lastPermit": _amounts(self.permit),
            "metrics": None,
        }
        answer = await self.post(f"{self.random.choice(self.targets.agents)}/", body)
        if answer.status == 200:
            permit = answer.json["permit"]
            told = Resources(cpu_milli(permit["vCPUs"]), mem_bytes(permit["mem"]))
            self.permit = told
            call.done(replica=answer.replica, told=told)
        elif answer.status in (400, 404) or b"something newer" in answer.body:
            call.refused(answer.why, replica=answer.replica)
        else:
            give_up(call, answer)
        return call.is_answered

    # Looking

    async def read(self) -> None:
        """All nodes, as people see them."""
        call = self.records.invoke(Op.READ, client=self.number)
        answer = await self.get("/api/v1/nodes")
        if answer.status != 200:
            give_up(call, answer)
            return
        shown = {
            node["name"]: NodeSeen(
                _pair(node["capacity"]), _pair(node["reserved"]), node["pods"], node["unsettled"]
            )
            for node in answer.json["nodes"]
            if node["name"] in self.targets.nodes
        }
        call.saw(shown, replica=answer.replica)

    async def _is_shown(self, name: str, status: int) -> bool:
        """Whether some replica has answered so for the pod before the call's time is over."""
        end = asyncio.get_running_loop().time() + self.targets.call_timeout
        while asyncio.get_running_loop().time() < end:
            if (await self.get(f"/api/v1/pods/{NAMESPACE}/{name}")).status == status:
                return True
            await asyncio.sleep(0.02)
        return False

    # What all share

    async def until_answered(self, ask: Callable[[], Awaitable[bool]]) -> None:
        """Ask for the same again while nobody can say what came of it, mostly; ever more slowly.

        Whoever asks for something else each time leaves as many possibilities behind.
        """
        pause = PAUSE
        while not await ask() and self.random.random() < PERSISTENCE:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def some_node(self, pod: Pod, *, stay: float) -> str:
        """The pod's own, with this probability, or any."""
        if pod.node and self.random.random() < stay:
            return pod.node
        return self.random.choice(sorted(self.targets.nodes))

    def invoke(self, op: Op, pod: Pod, node: str = "") -> Call:
        need = (pod.need.cpu, pod.need.mem)
        return self.records.invoke(op, client=self.number, pod=pod.uid, node=node, asked=need)

    async def extend(self, verb: str, body: Json) -> Answer:
        more = self.targets.holders if verb != "bind" else ()
        return await self.post(
            f"{self.random.choice([*self.targets.extenders, *more])}/{verb}", body
        )

    async def post(self, url: str, body: Json) -> Answer:
        return await self._ask("POST", url, body)

    async def get(self, path: str) -> Answer:
        return await self._ask("GET", self.random.choice(self.targets.admins) + path, None)

    async def _ask(self, method: str, url: str, body: Json | None) -> Answer:
        limit = aiohttp.ClientTimeout(total=self.targets.call_timeout)
        try:
            async with self.http.request(method, url, json=body, timeout=limit) as answer:
                replica = answer.headers.get("X-Replica", "")
                return Answer(answer.status, await answer.read(), replica, url)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            was_refused = isinstance(error, aiohttp.ClientConnectorError)
            return Answer(-1 if was_refused else 0, repr(error).encode())


def plain_pod(name: str, need: Resources) -> Json:
    """A pod of one container that nobody has bound."""
    requests = {"cpu": f"{need.cpu}m", "memory": str(need.mem)}
    metadata = {"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": "1"}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _amounts(amount: Resources) -> Json:
    return {"vCPUs": f"{amount.cpu}m", "mem": str(amount.mem)}


def _pair(amounts: Json) -> tuple[int, int]:
    return amounts["cpuMilli"], amounts["memoryBytes"]
