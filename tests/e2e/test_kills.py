"""Replicas that are killed while kube-scheduler places pods."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.e2e.conftest import StartScheduler
from tests.e2e.harness.api import NODES, PODS, VMS, Api, until
from tests.e2e.harness.kubelet import KubeletStandIn
from tests.e2e.harness.objects import node, pod, vm, vm_pod
from tests.e2e.harness.service import Service, shipped_configuration
from tests.e2e.sums import books_of, sums

PODS_COUNT = 300
OVER_SECONDS = 60
ROUNDS = 2


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


async def create_pods(api: Api) -> None:
    """One after the other; every tenth a VM."""
    for number in range(PODS_COUNT):
        if number % 10:
            await api.create(PODS, pod(f"p{number}", cpu="200m", memory="256Mi"))
        else:
            machine = await api.create(VMS, vm(f"vm-{number}"))
            await api.create(PODS, vm_pod(machine, f"p{number}"))
        await asyncio.sleep(OVER_SECONDS / PODS_COUNT)


async def kill_in_turn(service: Service) -> None:
    """Each replica so many times, and started again on its ports."""
    pause = OVER_SECONDS / (ROUNDS * len(service.replicas)) - 5
    for replica in service.replicas * ROUNDS:
        await asyncio.sleep(pause)
        await replica.kill()
        await asyncio.sleep(1)
        await replica.start()


@pytest.mark.timeout(180)
async def test_killed_replicas_lose_no_pod_and_leave_no_hold(
    service: Service, api: Api, kubelet: KubeletStandIn, start_scheduler: StartScheduler
) -> None:
    start_scheduler(shipped_configuration(service.url))
    for number in range(12):
        await api.create(NODES, node(f"n{number:02}", cpu="8", memory="32Gi"))
    async with nodes_of_pods(api) as seen:
        await asyncio.gather(create_pods(api), kill_in_turn(service))

        async def all_bound() -> bool:
            pods = await api.items(PODS, namespace="default")
            return len(pods) == PODS_COUNT and all(each["spec"].get("nodeName") for each in pods)

        async def all_agree() -> bool:
            wanted = sums(await api.items(PODS), {})
            agree = [books_of(await service.nodes(at=at)) == wanted for at in range(3)]
            return all(agree) and not service.tentative()

        await until(all_bound, "every pod is bound", within=30)
        await until(all_agree, "no drift and no hold left over", within=10)

    assert len(seen) == PODS_COUNT
    assert all(len(names) == 1 for names in seen.values())
    assert await service.breaches() == []
