"""Replicas, and all they stand on, are killed while pods are placed and VMs grow and shrink."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.conftest import StartServer
from tests.e2e.conftest import StartScheduler
from tests.e2e.harness.api import NODES, PODS, VMS, Api, ApiError, Kind, Object, until
from tests.e2e.harness.binaries import Binaries
from tests.e2e.harness.control_plane import ControlPlane, Scheduler
from tests.e2e.harness.kubelet import KubeletStandIn
from tests.e2e.harness.objects import node, pod, vm, vm_pod
from tests.e2e.harness.service import (
    Service,
    UnavailableError,
    configure,
    deployed_account,
    make_own_pods,
    shipped_configuration,
)
from tests.e2e.sums import books_of, sums

PODS_COUNT = 300
OVER_SECONDS = 60
ROUNDS = 2
VM_EVERY = 10
AUTOSCALING = {"autoscaling.neon.tech/enabled": "true"}
SETTLES = ("--settle-after=5s",)
"""The agents of these tests ask more often than that."""
ASKED = ["500m", "2", "1", "250m", "1500m"]


@asynccontextmanager
async def nodes_of_pods(api: Api) -> AsyncIterator[dict[str, set[str]]]:
    """Every node that a pod was ever bound to, by the pod's UID."""
    seen: dict[str, set[str]] = defaultdict(set)
    since = (await api.listing(PODS)).resource_version

    async def look() -> None:
        async with api.watch(PODS, since=since, namespace="default") as events:
            async for event in events:
                if name := event.object["spec"].get("nodeName"):
                    seen[event.object["metadata"]["uid"]].add(name)

    looking = asyncio.create_task(look())
    try:
        yield seen
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def create_pods(api: Api, count: int, *, over_seconds: float) -> None:
    """One after the other; every tenth a VM."""
    for number in range(count):
        if number % VM_EVERY:
            await create(api, PODS, pod(f"p{number}", cpu="200m", memory="256Mi"))
        else:
            machine = await create(api, VMS, vm(f"vm-{number}", labels=AUTOSCALING))
            await create(api, PODS, vm_pod(machine, f"p{number}"))
        await asyncio.sleep(over_seconds / count)


async def create(api: Api, kind: Kind, body: Object) -> Object:
    """However often the API server goes away."""

    async def is_there() -> Object | None:
        name = body["metadata"]["name"]
        try:
            return await api.find(kind, name) or await api.create(kind, body)
        except (aiohttp.ClientError, ApiError):
            return None

    created: Object = await until(is_there, f"{kind.plural} can be made")
    return created


async def kill_in_turn(service: Service) -> None:
    """Each replica so many times, and started again on its ports."""
    pause = OVER_SECONDS / (ROUNDS * len(service.replicas)) - 5
    for replica in service.replicas * ROUNDS:
        await asyncio.sleep(pause)
        await replica.kill()
        await asyncio.sleep(1)
        await replica.start()


@asynccontextmanager
async def agents(api: Api, service: Service) -> AsyncIterator[list[Object]]:
    """Every VM asks again and again, for more and for less, at one replica after the other.

    Gives the nodes that were seen over capacity.
    """
    over: list[Object] = []

    async def ask_all() -> None:
        for cpu, at in zip(itertools.cycle(ASKED), itertools.cycle(range(3)), strict=False):
            with contextlib.suppress(aiohttp.ClientError, ApiError):
                for name in await names_of_vms(api):
                    await service.ask(name, cpu=cpu, memory="1Gi", at=at)
            with contextlib.suppress(aiohttp.ClientError, UnavailableError):
                found = (await service.nodes(at=at)).values()
                over.extend(each for each in found if each["overCapacity"])
            await asyncio.sleep(0.2)

    asking = asyncio.create_task(ask_all())
    try:
        yield over
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking


async def names_of_vms(api: Api) -> list[str]:
    bound = await api.items(PODS, namespace="default", labels="vm.neon.tech/name")
    return [each["metadata"]["name"] for each in bound if each["spec"].get("nodeName")]


async def until_all_is_well(api: Api, service: Service, count: int) -> None:
    """Every pod bound, no drift and no hold left over, at every replica."""

    async def all_bound() -> bool:
        # Every VM gives back what others wait for; and where an answer was lost on its way, its
        # agent may know less, or more, than the ledger.
        for name in await names_of_vms(api):
            await service.ask(name, cpu="500m", memory="1Gi")
        pods = await api.items(PODS, namespace="default")
        return len(pods) == count and all(each["spec"].get("nodeName") for each in pods)

    async def all_agree() -> bool:
        wanted = sums(await api.items(PODS), service.permits)
        agree = [books_of(await service.nodes(at=at)) == wanted for at in range(3)]
        return all(agree) and not service.tentative()

    await until(all_bound, "every pod is bound", within=30)
    await until(all_agree, "no drift and no hold left over", within=10)
    assert await service.breaches() == []


@pytest.mark.timeout(180)
async def test_killed_replicas_lose_no_pod_and_leave_no_hold(
    service: Service, api: Api, kubelet: KubeletStandIn, start_scheduler: StartScheduler
) -> None:
    start_scheduler(shipped_configuration(service.url))
    await create_nodes(api, 12)
    async with nodes_of_pods(api) as seen:
        async with agents(api, service) as over:
            await asyncio.gather(
                create_pods(api, PODS_COUNT, over_seconds=OVER_SECONDS), kill_in_turn(service)
            )
        await until_all_is_well(api, service, PODS_COUNT)

    assert over == []
    assert len(seen) == PODS_COUNT
    assert all(len(names) == 1 for names in seen.values())


async def create_nodes(api: Api, count: int) -> None:
    """Room for all pods, but not for all that their VMs ask."""
    for number in range(count):
        await api.create(NODES, node(f"n{number:02}", cpu="7", memory="32Gi"))


@pytest.mark.timeout(180)
async def test_killed_surroundings_lose_no_pod_and_leave_no_hold(
    binaries: Binaries, start_server: StartServer
) -> None:
    """Redis with all that it held, then kube-scheduler, then the API server."""
    redis = start_server("valkey")
    with ControlPlane(binaries) as control_plane:
        async with control_plane.api() as api, KubeletStandIn(api):
            await api.install_neonvm()
            await configure(api, {"scoring": {}})
            await make_own_pods(api)
            await create_nodes(api, 4)
            rights = control_plane.kubeconfig(await deployed_account(api))
            async with Service(redis, rights, SETTLES) as service:
                with Scheduler(control_plane, shipped_configuration(service.url)) as scheduler:
                    async with agents(api, service) as over:
                        making = asyncio.create_task(create_pods(api, 100, over_seconds=15))
                        for part in (redis, scheduler.process, control_plane.kube_apiserver):
                            await asyncio.sleep(4)
                            part.kill()
                            await asyncio.to_thread(part.start)
                        await making
                    await until_all_is_well(api, service, 100)
                    assert over == []
