"""A real kube-scheduler in front of us and in front of the Go extender: pods bound a second."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.e2e.harness.api import NODES, PODS, Api, Object, until
from tests.e2e.harness.binaries import build_binaries
from tests.e2e.harness.control_plane import ControlPlane, Scheduler, scheduler_configuration
from tests.e2e.harness.objects import node, pod
from tests.e2e.harness.service import configure
from tests.support.servers import Server

from bench.figures import Figure, WrongAnswer
from bench.judge import verify
from bench.noise import Noise, Watched
from bench.peer_program import peer_binary
from bench.programs import go_peer, redis_server, replicas
from bench.scale import Say, Scale

AT_ONCE = 32
"""Objects that are made at the same time."""

CPU, NODE_CPU = 100, 4000
"""Millicores of a pod and of a node: there is room for all."""

WITHIN_SECONDS = 600.0

LIMITS = {500: 0.9, 5000: 1.1}


@dataclass(frozen=True, slots=True)
class Scene:
    """One API server with its nodes, and an empty ledger. Nobody follows it between turns."""

    control_plane: ControlPlane
    api: Api
    redis: Server

    def pids(self) -> list[int]:
        """Of what runs in every turn."""
        plane = self.control_plane
        return [plane.etcd.pid, plane.kube_apiserver.pid, self.redis.pid]


def run(scale: Scale, say: Say) -> Iterator[Figure]:
    """For each size of cluster, runs that take turns."""
    for nodes, pods in scale.scheduled:
        yield asyncio.run(_compared(nodes, pods, scale.scheduler_rounds, say))


async def _compared(nodes: int, pods: int, rounds: int, say: Say) -> Figure:
    ours: list[float] = []
    theirs: list[float] = []
    noise: list[Noise] = []
    say(f"a control plane with {nodes} nodes")
    async with _scene(nodes) as scene:
        for number in range(rounds):
            watched = Watched(scene.pids())
            turns = (_with_us, _with_peer) if number % 2 == 0 else (_with_peer, _with_us)
            for turn in turns:
                rate = await turn(scene, pods)
                (ours if turn is _with_us else theirs).append(rate)
            noise.append(watched.noise())
            say(f"round {number + 1}: {ours[-1]:.0f} and {theirs[-1]:.0f} pods a second")
    return Figure(
        name=f"kube-scheduler, {nodes} nodes, {pods} pods: pods a second against the Go extender",
        ours=ours,
        reference=theirs,
        bound="at least" if nodes in LIMITS else "shown",
        limit=LIMITS.get(nodes, 0.0),
        unit="/s",
        noise=noise,
    )


@asynccontextmanager
async def _scene(nodes: int) -> AsyncIterator[Scene]:
    with ExitStack() as stack:
        control_plane = stack.enter_context(ControlPlane(build_binaries()))
        async with control_plane.api() as api:
            await api.install_neonvm()
            await configure(api, {"scoring": {}})
            made = [node(f"n{each:05}", cpu=f"{NODE_CPU}m") for each in range(nodes)]
            await _make(api, made)
            yield Scene(control_plane, api, stack.enter_context(redis_server()))


async def _with_us(scene: Scene, pods: int) -> float:
    """Our replica is started anew, as the peer is: each has the machine for itself."""
    flags = [f"--kubeconfig={scene.control_plane.kubeconfig()}", "--settle-after=0s"]
    with ExitStack() as stack:
        started = replicas(scene.redis.tcp_url, "kubernetes", *flags)
        (replica,) = await asyncio.to_thread(stack.enter_context, started)
        rate = await _rate(scene, replica.extender, pods)
        await asyncio.to_thread(verify, replica.admin)
        await _empty(scene.api)
    return rate


async def _with_peer(scene: Scene, pods: int) -> float:
    """The peer is started anew: it never hears that a pod is gone."""
    plane = scene.control_plane
    with ExitStack() as stack:
        started = go_peer(peer_binary(), "-api", plane.url, API_TOKEN=plane.admin_token)
        peer = await asyncio.to_thread(stack.enter_context, started)
        rate = await _rate(scene, peer.said, pods)
    await _empty(scene.api)
    return rate


async def _rate(scene: Scene, extender: str, pods: int) -> float:
    """Pods bound a second, from the first Binding that is seen to the last."""
    made = [pod(f"p{each:05}", cpu=f"{CPU}m") for each in range(pods)]
    await _make(scene.api, made)
    since = (await scene.api.listing(NODES)).resource_version
    async with scene.api.watch(PODS, since=since, namespace="default") as events:
        configuration = _configuration(extender)
        with ExitStack() as stack:
            scheduler = Scheduler(scene.control_plane, configuration)
            await asyncio.to_thread(stack.enter_context, scheduler)
            rate = await _bound_a_second(events, pods)
    _judge(await scene.api.items(PODS, namespace="default"), pods)
    return rate


async def _bound_a_second(events: AsyncIterator[Any], pods: int) -> float:
    bound: set[str] = set()
    began = 0.0
    async with asyncio.timeout(WITHIN_SECONDS):
        async for event in events:
            if not event.object["spec"].get("nodeName"):
                continue
            began = began or time.perf_counter()
            bound.add(event.object["metadata"]["name"])
            if len(bound) == pods:
                break
    return (pods - 1) / (time.perf_counter() - began)


def _configuration(extender: str) -> Object:
    """As shipped, without limits on what kube-scheduler may ask of the API server."""
    configuration = scheduler_configuration(extender)
    configuration["percentageOfNodesToScore"] = 100
    configuration["clientConnection"] = {"qps": 5000, "burst": 5000}
    return configuration


def _judge(found: Sequence[Object], pods: int) -> None:
    """Raise WrongAnswer where a pod is not placed or a node is given more than it has."""
    used: dict[str, int] = defaultdict(int)
    for each in found:
        used[each["spec"].get("nodeName") or ""] += CPU
    over = [name for name, cpu in used.items() if cpu > NODE_CPU]
    if len(found) != pods or "" in used or over:
        raise WrongAnswer(f"kube-scheduler: {len(found)} pods, {used['']} m unbound, over: {over}")


async def _empty(api: Api) -> None:
    await api.request("DELETE", PODS.path(namespace="default"), {"gracePeriodSeconds": 0})

    async def none_left() -> bool:
        return not await api.items(PODS, namespace="default")

    await until(none_left, "no pods", within=120)


async def _make(api: Api, bodies: Sequence[Object]) -> None:
    waiting = iter(bodies)

    async def work() -> None:
        for body in waiting:
            await api.create(NODES if body["kind"] == "Node" else PODS, body)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
