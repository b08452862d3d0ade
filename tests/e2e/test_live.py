"""Three replicas between a real kube-scheduler and a real kube-apiserver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import StartScheduler
from tests.e2e.harness.api import NODES, PODS, Api, until
from tests.e2e.harness.control_plane import ControlPlane, scheduler_configuration
from tests.e2e.harness.kubelet import KubeletStandIn
from tests.e2e.harness.objects import node, pod
from tests.support.servers import Server, free_port
from tests.support.serving import Served, serving

CONFIG = '{"scoring": {"minUsageScore": 0.5, "maxUsageScore": 0, "scorePeak": 0.8}, "schedulerName": "autoscale-scheduler", "watermark": 0.9}'


@dataclass(frozen=True, slots=True)
class Live:
    """The service as kube-scheduler sees it."""

    replicas: list[Served]
    url: str

    async def get(self, path: str) -> Any:
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{self.replicas[0].admin}{path}") as answer,
        ):
            assert answer.status == 200, await answer.text()
            return await answer.json()


@pytest.fixture
async def live(control_plane: ControlPlane, api: Api, valkey_server: Server) -> AsyncIterator[Live]:
    config = {"metadata": {"name": "scheduler-plugin-config", "namespace": "kube-system"}}
    config["data"] = {"autoscaler-enforcer-config.json": CONFIG}
    await api.apply({"apiVersion": "v1", "kind": "ConfigMap", **config})
    port = free_port()
    flags = (
        *("--kubeconfig", str(control_plane.kubeconfig())),
        *("--settle-after=0s", "--bind-budget=1s"),
    )
    async with serving(valkey_server.url, "kubernetes", *flags, shared_port=port) as replicas:
        yield Live(replicas, f"http://127.0.0.1:{port}/extender")


async def test_pods_are_placed_and_booked(
    live: Live, api: Api, kubelet: KubeletStandIn, start_scheduler: StartScheduler
) -> None:
    start_scheduler(scheduler_configuration(live.url))
    for number in range(3):
        await api.create(NODES, node(f"n{number}", cpu="4"))
    for number in range(20):
        await api.create(PODS, pod(f"p{number}", cpu="500m"), namespace="default")

    async def all_bound() -> bool:
        pods = await api.items(PODS)
        return sum(1 for each in pods if each["spec"].get("nodeName")) == 20

    await until(all_bound, "20 pods bound")
    await asyncio.sleep(1)
    nodes = (await live.get("/api/v1/nodes"))["nodes"]
    assert sum(each["pods"] for each in nodes) == 20
    assert sum(each["reserved"]["cpuMilli"] for each in nodes) == 10_000
    assert (await live.get("/api/v1/verify"))["breaches"] == []
