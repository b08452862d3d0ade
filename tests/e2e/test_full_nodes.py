"""Nodes filled to the last millicore by a real kube-scheduler, with books tighter than its own."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest

from tests.e2e.conftest import StartScheduler
from tests.e2e.harness.api import (
    NODES,
    PODS,
    VMS,
    Api,
    Object,
    until,
)
from tests.e2e.harness.control_plane import Scheduler
from tests.e2e.harness.kubelet import KubeletStandIn
from tests.e2e.harness.objects import node, pod, vm, vm_pod
from tests.e2e.harness.service import (
    OUR_LABEL,
    ROOM_ANNOTATION,
    Service,
    UnknownError,
    configure,
    make_own_pods,
    shipped_configuration,
)
from tests.e2e.sums import amounts, annotation, books_of, quantity, requests, sums
from tests.support.manifests import NAMESPACE
from tests.support.servers import Server

NODE_NAMES = [f"n{number:02}" for number in range(12)]
CPU, MEMORY = 3500, 15 << 30
"""What is left of 4 CPUs and 16 GiB."""
SYSTEM = {"cpu": {"system": "500m"}, "memory": {"system": "1Gi"}}
REASONS = ("Insufficient cpu left", "Insufficient memory left", "Insufficient cpu and memory left")


@pytest.fixture
async def tight(api: Api, kubeconfig: Path, valkey_server: Server) -> AsyncIterator[Service]:
    """Three replicas that keep back half a CPU of each node."""
    await api.install_neonvm()
    await configure(api, {"nodeDefaults": SYSTEM})
    await make_own_pods(api)
    async with Service(valkey_server, kubeconfig) as service:
        yield service


# Kinds of pods


def plain(name: str) -> Object:
    return pod(name, cpu="300m", memory="256Mi")


def sidecar(name: str) -> Object:
    """350m while it starts, 300m from then on: the larger counts."""
    made = pod(name, cpu="200m", memory="256Mi")
    made["spec"]["initContainers"] = [
        container("beside", "100m", restartPolicy="Always"),
        container("before", "250m"),
    ]
    return made


def container(name: str, cpu: str, **more: str) -> Object:
    requests = {"requests": {"cpu": cpu, "memory": "64Mi"}}
    return {"name": name, "image": "registry.k8s.io/pause:3.10", "resources": requests, **more}


def heavy(name: str) -> Object:
    """300m, 50m of them overhead."""
    made = pod(name, cpu="250m", memory="256Mi")
    made["spec"]["runtimeClassName"] = "heavy"
    return made


def limited(name: str) -> Object:
    """Limits stand in for requests."""
    made = pod(name)
    limits = {"cpu": "300m", "memory": "256Mi"}
    made["spec"]["containers"][0]["resources"] = {"limits": limits}
    return made


KINDS: list[Callable[[str], Object]] = [plain, sidecar, heavy, limited]


async def make_vm(api: Api, name: str, *, overcommit: bool = False, on: str = "") -> Object:
    """A VM of 250m that may grow to 2 CPUs, and its pod; `on` is the only node it may be on."""
    machine = await api.create(VMS, vm(name, labels={"autoscaling.neon.tech/enabled": "true"}))
    runner = vm_pod(machine, f"{name}-pod")
    if overcommit:
        factors = json.dumps({"cpu": 2, "memory": 1.5})
        runner["metadata"]["annotations"]["vm.neon.tech/overcommit"] = factors
    if on:
        runner["spec"]["nodeSelector"] = {"kubernetes.io/hostname": on}
    return await api.create(PODS, runner)


# What is looked at


@dataclass(frozen=True, slots=True)
class Full:
    """The cluster when nothing more fits: no pending pod on any node, by our own sums."""

    bound: list[Object]
    pending: list[Object]


async def look(api: Api, service: Service) -> Full | None:
    """None while some pending pod would fit somewhere, or has not been refused yet."""
    pods = await api.items(PODS, namespace="default")
    bound = [each for each in pods if each["spec"].get("nodeName")]
    pending = [each for each in pods if not each["spec"].get("nodeName")]
    taken = sums(pods, service.permits)
    for each in pending:
        cpu, mem = charge(each, service)
        rooms = [(CPU - taken[n].reserved_cpu, MEMORY - taken[n].reserved_mem) for n in NODE_NAMES]
        if any(cpu <= free_cpu and mem <= free_mem for free_cpu, free_mem in rooms):
            return None
        if not message(each):
            return None
    return Full(bound, pending)


def charge(found: Object, service: Service) -> tuple[Fraction, Fraction]:
    factors = json.loads(annotation(found, "vm.neon.tech/overcommit") or "{}")
    cpu, mem = amounts(found, service.permits)
    return cpu / quantity(factors.get("cpu", 1)), mem / quantity(factors.get("memory", 1))


def message(found: Object) -> str:
    """Why kube-scheduler did not place it."""
    conditions = {each["type"]: each for each in found["status"].get("conditions", [])}
    text: str = conditions.get("PodScheduled", {}).get("message", "")
    return text


async def check_books(api: Api, service: Service) -> None:
    """No node over capacity; the ledger is the sum over the API's pods, at every replica."""
    wanted = sums(await api.items(PODS), service.permits)
    for name in NODE_NAMES:
        assert wanted[name].reserved_cpu <= CPU
        assert wanted[name].reserved_mem <= MEMORY
    for at in range(len(service.replicas)):
        assert books_of(await service.nodes(at=at)) == wanted
    assert await service.breaches() == []
    assert service.tentative() == 0


async def until_books_agree(api: Api, service: Service, *, within: float) -> None:
    async def agree() -> bool:
        wanted = sums(await api.items(PODS), service.permits)
        return books_of(await service.nodes(at=1)) == {n: s for n, s in wanted.items() if s.pods}

    await until(agree, "the ledger agrees with the API", within=within)


@asynccontextmanager
async def rings(api: Api) -> AsyncIterator[list[float]]:
    """The times at which a replica's pod was touched."""
    heard: list[float] = []
    since = (await api.listing(PODS, namespace=NAMESPACE)).resource_version
    labels = "=".join(OUR_LABEL)

    async def listen() -> None:
        async with api.watch(PODS, since=since, namespace=NAMESPACE, labels=labels) as events:
            async for event in events:
                rung = float(annotation(event.object, ROOM_ANNOTATION) or 0)
                if rung and rung not in heard:
                    heard.append(rung)

    listening = asyncio.create_task(listen())
    try:
        yield heard
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


@pytest.mark.timeout(240)
async def test_two_hundred_pods_fill_twelve_nodes_and_no_more(
    tight: Service, api: Api, kubelet: KubeletStandIn, start_scheduler: StartScheduler
) -> None:
    scheduler = start_scheduler(shipped_configuration(tight.url))
    async with rings(api) as heard:
        full = await fill(api, tight)
        await until_books_agree(api, tight, within=5)
        await check_books(api, tight)
        check_reasons(full)

        await check_deletions_make_room(api, tight, full)
        await until(lambda: is_idle(scheduler), "kube-scheduler tries nothing any more")
        await check_a_downscale_makes_room(api, tight)

        full = await until(lambda: look(api, tight), "full again", within=30)
        await until_books_agree(api, tight, within=5)
        await check_books(api, tight)
    check_rings(heard)


async def fill(api: Api, service: Service) -> Full:
    """One VM on each node first, which grows; then pods of all kinds until nothing more fits."""
    overhead = {"podFixed": {"cpu": "50m", "memory": "64Mi"}}
    heavy_class = {"metadata": {"name": "heavy"}, "handler": "heavy", "overhead": overhead}
    await api.apply({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"} | heavy_class)
    for name in NODE_NAMES:
        await api.create(NODES, node(name, cpu="4", memory="16Gi"))
    for number, name in enumerate(NODE_NAMES):
        await make_vm(api, f"grows-{number}", overcommit=number % 2 == 0, on=name)
    await until(lambda: has_bound(api, len(NODE_NAMES)), "the VMs are bound")
    for number in range(len(NODE_NAMES)):
        asked = service.ask(f"grows-{number}-pod", cpu="1", memory="2Gi", at=number % 3)
        assert await asked == (200, {"vCPUs": 1, "mem": "2Gi"})
    for number in range(200 - len(NODE_NAMES)):
        if number % 5 == 4:
            await make_vm(api, f"idle-{number}")
        else:
            await api.create(PODS, KINDS[number % 5](f"p{number}"))
    full: Full = await until(lambda: look(api, service), "all nodes are full", within=90)
    return full


async def has_bound(api: Api, count: int) -> bool:
    pods = await api.items(PODS, namespace="default")
    return sum(bool(each["spec"].get("nodeName")) for each in pods) >= count


def check_reasons(full: Full) -> None:
    """Every pod that kube-scheduler alone would have placed says in our words why it was not."""
    assert len(full.bound) + len(full.pending) == 200
    asked = {name: [Fraction(0), Fraction(0)] for name in NODE_NAMES}
    for each in full.bound:
        asked[each["spec"]["nodeName"]][0] += requests(each, "cpu")
        asked[each["spec"]["nodeName"]][1] += requests(each, "memory")
    only_ours = [
        each
        for each in full.pending
        if any(
            cpu + requests(each, "cpu") <= 4 and mem + requests(each, "memory") <= 16 << 30
            for cpu, mem in asked.values()
        )
    ]
    assert len(only_ours) >= 20
    for each in only_ours:
        assert any(reason in message(each) for reason in REASONS), message(each)


async def check_deletions_make_room(api: Api, service: Service, full: Full) -> None:
    """The ledger knows within 2 s of a pod's end, and pending pods take the room.

    One is deleted, another is done, on each of some nodes.
    """
    for name in NODE_NAMES[:3]:
        on_node = [each for each in full.bound if each["spec"]["nodeName"] == name]
        plain_pods = [each for each in on_node if each["metadata"]["name"].startswith("p")]
        gone, done = (each["metadata"]["name"] for each in plain_pods[:2])
        await api.delete(PODS, gone)
        await until(lambda gone=gone: is_gone(api, gone), "the pod has ended")  # type: ignore[misc]
        await until(lambda gone=gone: is_forgotten(service, gone), "the ledger knows", within=2)  # type: ignore[misc]
        status = {"status": {"phase": "Succeeded"}}
        await api.patch(PODS, done, status, subresource="status", strategy="strategic")
        await until(lambda done=done: is_forgotten(service, done), "the ledger knows", within=2)  # type: ignore[misc]
    await until(lambda: has_bound(api, len(full.bound) - 3 + 6), "all six are replaced", within=15)


async def is_gone(api: Api, name: str) -> bool:
    return await api.find(PODS, name) is None


async def is_forgotten(service: Service, name: str) -> bool:
    """It holds nothing any more."""
    try:
        return (await service.get(f"/api/v1/pods/default/{name}", at=1))["node"] is None
    except UnknownError:
        return True


async def is_idle(scheduler: Scheduler) -> bool:
    """Every pending pod waits for something to change: none is about to be tried again."""
    queues = await asyncio.to_thread(scheduler.pending_pods)
    return not queues["active"] and not queues["backoff"]


async def check_a_downscale_makes_room(api: Api, service: Service) -> None:
    """A pod is placed within 2 s of it."""
    full = await until(lambda: look(api, service), "full again", within=30)

    status, permit = await service.ask("grows-1-pod", cpu="250m", memory="1Gi", at=1)
    await until(lambda: has_bound(api, len(full.bound) + 1), "one takes the room", within=2)

    assert (status, permit) == (200, {"vCPUs": "250m", "mem": "1Gi"})


def check_rings(heard: list[float]) -> None:
    """The API server bears at most one write a second for it."""
    assert heard
    heard.sort()
    gaps = [later - earlier for earlier, later in itertools.pairwise(heard)]
    assert min(gaps, default=1) > 0.95


# Room that kube-scheduler hears of from nobody else, and preemption


@pytest.fixture
async def one_full_node(
    tight: Service, api: Api, kubelet: KubeletStandIn, start_scheduler: StartScheduler
) -> Service:
    """3400m of 3500m are taken, by kube-scheduler's own books of 4000m; both may be evicted."""
    start_scheduler(shipped_configuration(tight.url))
    priority = {"metadata": {"name": "high"}, "value": 1000}
    await api.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"} | priority)
    await api.create(NODES, node("n1", cpu="4"))
    for name in ("low-1", "low-2"):
        await api.create(PODS, pod(name, cpu="1700m"))
    await until(lambda: has_bound(api, 2), "both are bound")
    return tight


async def test_released_hold_and_changed_config_bring_room_back(
    one_full_node: Service, api: Api
) -> None:
    """Neither changes anything in the API but what the leader touches."""
    holds = await api.create(PODS, pod("holds", scheduler="somebody-else"))
    held = {"Pod": holds, "NodeName": "n1"}
    assert await one_full_node.extend("reserve", held, at=0) == {"Code": "Success", "Reasons": []}
    await api.create(PODS, pod("small"))
    await until(lambda: is_refused(api, "small"), "nothing is left for it")

    await one_full_node.extend("unreserve", held, at=1)
    await until(lambda: node_of(api, "small"), "it has what was held", within=2)
    await api.create(PODS, pod("large", cpu="400m"))
    await until(lambda: is_refused(api, "large"), "nothing is left for it")

    await configure(api, {"scoring": {}})
    await until(lambda: node_of(api, "large"), "it has what the system had", within=10)
    await until_books_agree(api, one_full_node, within=5)


async def is_refused(api: Api, name: str) -> bool:
    return "left by reservations" in message(await api.get(PODS, name))


def important(name: str, cpu: str) -> Object:
    made = pod(name, cpu=cpu)
    made["spec"]["priorityClassName"] = "high"
    return made


async def test_high_priority_evicts_where_kube_scheduler_itself_has_no_room(
    one_full_node: Service, api: Api
) -> None:
    await api.create(PODS, important("evicts", "1500m"))

    await until(lambda: node_of(api, "evicts"), "it is bound")

    left = {each["metadata"]["name"] for each in await api.items(PODS, namespace="default")}
    assert len(left) == 2
    await until_books_agree(api, one_full_node, within=5)
    assert (await one_full_node.nodes())["n1"]["reserved"]["cpuMilli"] == 3200


async def test_high_priority_cannot_evict_where_only_we_refuse(
    one_full_node: Service, api: Api
) -> None:
    """docs/limits.md: a node that passes kube-scheduler's own fit is no candidate (v1.36)."""
    await api.create(PODS, important("waits", "300m"))

    async def refused() -> str:
        return message(await api.get(PODS, "waits"))

    words = await until(refused, "it is refused")
    await asyncio.sleep(3)

    assert "1 Insufficient cpu left by reservations" in words
    assert await node_of(api, "waits") is None
    assert not any(
        "deletionTimestamp" in each["metadata"]
        for each in await api.items(PODS, namespace="default")
    )
    status = (await api.get(PODS, "waits"))["status"]
    assert "nominatedNodeName" not in status


async def node_of(api: Api, name: str) -> str | None:
    found: str | None = (await api.get(PODS, name))["spec"].get("nodeName")
    return found
