"""Rows of the field reports that are about the API server, against a real one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.harness.api import NODES, PODS, VMS, Api, Object, until
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.objects import node, pod, vm, vm_pod
from tests.e2e.harness.service import Service, configure, deployed_account, make_own_pods
from tests.support.api_proxy import ApiProxy
from tests.support.servers import Server

BINDING = "/binding$"
ELSEWHERE = "Pod is bound or being bound to another node"
TOO_LATE = "no answer in time: ask again"
NO_CPU = "Insufficient cpu left by reservations"
SHORT_HOLDS = ("--hold-lifetime=3s", "--sweep-every=500ms")
SMALL_N1 = {"nodeOverrides": [{"nodes": ["n1"], "config": {"cpu": {"system": "3"}}}]}
"""1 CPU is left of n1's 4."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Two replicas that reach the API server by a door which loses what it is told to."""

    api: Api
    service: Service
    proxy: ApiProxy

    async def filter(self, found: Object, *, at: int = 0) -> tuple[list[str], dict[str, str]]:
        """Of n1 and n2: what passed, and why not."""
        answer = await self.service.filter(found, "n1", "n2", at=at)
        assert not answer.get("Error")
        return answer["NodeNames"], answer["FailedNodes"] or {}

    async def reserved(self, name: str) -> int:
        """Millicores."""
        return int((await self.service.nodes())[name]["reserved"]["cpuMilli"])

    async def nodes_of(self, found: Object) -> tuple[str | None, str | None]:
        """Where a pod is, in the API and in the ledger."""
        name = found["metadata"]["name"]
        there = await self.api.find(PODS, name)
        known = await self.service.get(f"/api/v1/pods/default/{name}")
        return there["spec"].get("nodeName") if there else None, known["node"]

    async def create_vm(self, name: str, *, bound_to: str = "", cpu: str = "500m") -> Object:
        """A VM and its pod."""
        labels = {"autoscaling.neon.tech/enabled": "true"}
        machine = await self.api.create(VMS, vm(name, cpus=(cpu, cpu, 2), labels=labels))
        runner = vm_pod(machine, f"{name}-pod")
        if bound_to:
            runner["spec"]["nodeName"] = bound_to
        return await self.api.create(PODS, runner)


@pytest.fixture
async def bench(
    control_plane: ControlPlane, api: Api, valkey_server: Server, tmp_path: Path
) -> AsyncIterator[Bench]:
    await api.install_neonvm()
    await configure(api, {"nodeDefaults": {}, **SMALL_N1})
    await make_own_pods(api, 2)
    for name in ("n1", "n2"):
        await api.create(NODES, node(name, cpu="4"))
    token = await deployed_account(api)
    async with ApiProxy(control_plane.url, control_plane.ca_file) as proxy:
        kubeconfig = proxy.kubeconfig(token, tmp_path)
        async with Service(valkey_server, kubeconfig, SHORT_HOLDS, count=2) as service:
            await until(lambda: knows(service, "n1", "n2"), "both nodes are known")
            yield Bench(api, service, proxy)
            assert await service.breaches() == []
            proxy.calm()


async def knows(service: Service, *names: str) -> bool:
    return set(names) <= (await service.nodes()).keys()


@pytest.mark.parametrize("hangs_up", [False, True], ids=["waits", "hangs-up"])
async def test_row_01_a_bind_whose_answer_is_lost_is_bound(bench: Bench, *, hangs_up: bool) -> None:
    """The scheduler retried for ever, or the hold was dropped from a pod that really ran."""
    asks = await bench.api.create(PODS, pod("u1"))
    await bench.filter(asks)
    bench.proxy.lose_reply("POST", BINDING)

    first = asyncio.ensure_future(bench.service.bind(asks, "n1"))
    if hangs_up:
        await until(lambda: is_bound(bench, asks), "the Binding has been carried out")
        first.cancel()
    [error] = await asyncio.gather(first, return_exceptions=True)

    assert hangs_up or error == ""
    await until(lambda: is_booked(bench, asks, "n1"), "it is booked")
    for at in range(2):
        assert await bench.filter(asks, at=at) == (["n1"], {"n2": ELSEWHERE})
        assert await bench.service.bind(asks, "n1", at=at) == ""
        assert await bench.service.bind(asks, "n2", at=at) == ELSEWHERE
    assert (await bench.reserved("n1"), await bench.reserved("n2")) == (100, 0)
    assert bench.proxy.count("POST", BINDING) == 1


async def is_bound(bench: Bench, found: Object) -> bool:
    there = await bench.api.get(PODS, found["metadata"]["name"])
    return "nodeName" in there["spec"]


async def is_booked(bench: Bench, found: Object, name: str) -> bool:
    known = await bench.service.get(f"/api/v1/pods/default/{found['metadata']['name']}")
    return (known["stage"], known["node"]) == ("bound", name)


async def test_row_01_a_binding_that_arrives_late_takes_no_effect(bench: Bench) -> None:
    """A Binding whose bind was given up bound the pod to a node where nothing was held for it."""
    asks = await bench.api.create(PODS, pod("u1"))
    await bench.filter(asks)
    bench.proxy.hold("POST", BINDING)

    error = await bench.service.bind(asks, "n1")
    await until(lambda: has_room(bench, "n1"), "the bind is given up")
    bench.proxy.calm()
    await until(lambda: has_been_refused(bench), "the Binding has arrived")

    assert error == TOO_LATE
    assert await bench.nodes_of(asks) == (None, None)
    assert await bench.reserved("n1") == 0
    assert bench.service.tentative() == 0
    assert await bench.service.bind(asks, "n2", at=1) == ""
    assert await bench.nodes_of(asks) == ("n2", "n2")


@pytest.mark.parametrize("arrives", [False, True], ids=["is-lost", "arrives"])
async def test_row_01_a_bind_the_api_server_says_nothing_of_stays_held(
    bench: Bench, *, arrives: bool
) -> None:
    """A hold was given up while its Binding was still on its way."""
    asks = await bench.api.create(PODS, pod("u1"))
    await bench.filter(asks)
    lose = bench.proxy.hold if arrives else bench.proxy.drop
    lose("POST", BINDING)
    bench.proxy.drop("GET", "/pods/u1$")

    began = time.monotonic()
    error = await bench.service.bind(asks, "n1")
    took = time.monotonic() - began
    elsewhere = await bench.service.bind(asks, "n2", at=1)
    filtered = await bench.filter(asks, at=1)
    known = await bench.service.get("/api/v1/pods/default/u1")
    bench.proxy.calm()

    assert error == TOO_LATE
    assert took < 2.5  # half of what kube-scheduler waits
    assert elsewhere == ELSEWHERE
    assert filtered == (["n1"], {"n2": ELSEWHERE})
    assert (known["stage"], known["node"]) == ("binding", "n1")
    if arrives:
        await until(lambda: is_booked(bench, asks, "n1"), "it is booked")
    else:
        await until(lambda: has_room(bench, "n1"), "the hold is given up")
        assert await bench.service.bind(asks, "n2", at=1) == ""
    where = "n1" if arrives else "n2"
    assert await bench.nodes_of(asks) == (where, where)
    assert bench.service.tentative() == 0


async def has_room(bench: Bench, name: str) -> bool:
    return await bench.reserved(name) == 0


async def has_been_refused(bench: Bench) -> bool:
    return 409 in bench.proxy.statuses("POST", BINDING)


async def test_row_02_a_bind_goes_by_uid(bench: Bench) -> None:
    """Bind went by name and hit another pod that had taken the same name."""
    old = await bench.api.create(PODS, pod("web-0"))
    await bench.filter(old)
    bench.proxy.hold_events()
    await bench.api.delete(PODS, "web-0", grace_seconds=0)
    new = await bench.api.create(PODS, pod("web-0"))

    errors = [await bench.service.bind(old, "n1", at=at) for at in range(2)]

    assert errors == ["the pod is gone"] * 2
    assert not await is_bound(bench, new)
    assert await bench.reserved("n1") == 0
    assert bench.service.tentative() == 0
    assert await bench.service.bind(new, "n1", at=1) == ""


async def test_row_02_a_bind_does_not_wait_for_the_watch(bench: Bench) -> None:
    """Bind failed only because the local cache had not seen the pod yet."""
    bench.proxy.hold_events()
    asks = await bench.api.create(PODS, pod("u1"))

    assert await bench.service.bind(asks, "n1") == ""
    assert await bench.nodes_of(asks) == ("n1", "n1")


async def test_row_06_a_refused_bind_is_a_refused_filter(bench: Bench) -> None:
    """Filter said yes and reserve said no, for ever, on the same node, while others had room."""
    asks, other = [await bench.api.create(PODS, pod(name, cpu="600m")) for name in ("u1", "u2")]
    assert await bench.filter(asks, at=0) == (["n1", "n2"], {})
    assert await bench.service.bind(other, "n1", at=1) == ""

    error = await bench.service.bind(asks, "n1", at=0)

    assert error == NO_CPU
    assert bench.proxy.count("POST", BINDING) == 1
    for at in range(2):
        assert await bench.filter(asks, at=at) == (["n2"], {"n1": NO_CPU})
    assert await bench.service.bind(asks, "n2", at=0) == ""
    assert (await bench.reserved("n1"), await bench.reserved("n2")) == (600, 600)


async def test_row_07_what_a_vm_held_is_freed_after_a_failed_bind(bench: Bench) -> None:
    """Release was skipped for VM pods, crashed, or leaked after a single failed bind."""
    gone = await bench.create_vm("gone")
    leaving = await bench.create_vm("leaving")
    finalizers = {"metadata": {"finalizers": ["e2e.example/keep"]}}
    await bench.api.patch(PODS, "leaving-pod", finalizers)
    for runner in (gone, leaving):
        assert await reserve(bench, runner, "n1") == "Success"
    assert await bench.reserved("n1") == 1000
    assert await unreserve(bench, leaving, "n2") == "Success"
    assert await bench.reserved("n1") == 1000

    bench.proxy.hold_events()
    await bench.api.delete(PODS, "gone-pod", grace_seconds=0)
    await bench.api.delete(PODS, "leaving-pod", grace_seconds=0)
    not_found = await bench.service.bind(gone, "n1", at=1)
    conflict = await bench.service.bind(leaving, "n1", at=1)

    assert bench.proxy.statuses("POST", BINDING)[-2:] == [404, 409]
    assert (not_found, conflict) == ("the pod is gone", "the Binding was refused")
    assert await bench.reserved("n1") == 0
    for runner in (gone, gone, leaving, pod_of_nobody()):
        assert await unreserve(bench, runner, "n1") == "Success"
    assert await bench.reserved("n1") == 0
    assert await bench.service.bind(await bench.create_vm("next", cpu="1"), "n1", at=1) == ""
    assert await bench.reserved("n1") == 1000
    await bench.api.patch(PODS, "leaving-pod", {"metadata": {"finalizers": None}})


async def reserve(bench: Bench, found: Object, name: str) -> str:
    answer = await bench.service.extend("reserve", {"Pod": found, "NodeName": name})
    return str(answer["Code"])


async def unreserve(bench: Bench, found: Object, name: str) -> str:
    answer = await bench.service.extend("unreserve", {"Pod": found, "NodeName": name}, at=1)
    return str(answer["Code"])


def pod_of_nobody() -> Object:
    made = pod("u9")
    made["metadata"]["uid"] = "u9"
    return made


async def test_row_13_an_agent_is_answered_before_the_watch_tells(bench: Bench) -> None:
    """One late event and the agent got 404 for ever, or every filter waited for a relist."""
    bench.proxy.hold_events()
    early = pod("early-pod")
    owner = {"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "name": "early"}
    runner = vm_pod(vm("early") | {"metadata": {**vm("early")["metadata"], "uid": "later"}}, "x")
    early["metadata"]["annotations"] = runner["metadata"]["annotations"]
    early["metadata"]["labels"] = {"autoscaling.neon.tech/enabled": "true"}
    early["metadata"]["ownerReferences"] = [owner | {"uid": "later", "controller": True}]
    early["spec"]["nodeName"] = "n2"
    await bench.api.create(PODS, early)  # its VM comes later
    await bench.create_vm("late", bound_to="n2")
    waits = await bench.create_vm("waits")
    await bench.api.create(PODS, pod("plain") | {"spec": early["spec"]})

    asked = {
        name: await bench.service.ask(name, cpu="1", memory="2Gi", at=at)
        for at, name in enumerate(("early-pod", "late-pod"))
    }
    refused = [
        (await bench.service.ask(name, cpu="1", memory="2Gi"))[0]
        for name in ("waits-pod", "plain", "absent")
    ]
    began = time.monotonic()
    passed, _ = await bench.filter(waits)
    took = time.monotonic() - began

    permit = (200, {"vCPUs": 1, "mem": "2Gi"})
    assert asked == {"early-pod": permit, "late-pod": permit}
    assert refused == [404, 400, 404]
    assert await bench.reserved("n2") == 2000 + 100  # the plain pod was learned with its refusal
    assert passed == ["n1", "n2"]
    assert took < 1
