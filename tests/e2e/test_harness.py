"""The harness itself: what the other end-to-end tests stand on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.e2e.conftest import StartScheduler
from tests.e2e.harness.api import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    EVENTS,
    MIGRATIONS,
    NODES,
    PODS,
    VMS,
    Api,
    ApiError,
    Object,
    until,
)
from tests.e2e.harness.binaries import Binaries, MissingBinariesError, build_binaries
from tests.e2e.harness.control_plane import ControlPlane, scheduler_configuration
from tests.e2e.harness.kubelet import Delays, KubeletStandIn
from tests.e2e.harness.objects import (
    cluster_role,
    cluster_role_binding,
    migration,
    node,
    pod,
    vm,
    vm_pod,
)

ROOT = Path(__file__).parents[2]
NEVER = timedelta(hours=1)


class StubExtender:
    """Lets every node pass and binds, as an extender of few words; keeps what it was asked."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.calls: dict[str, list[Object]] = {"filter": [], "prioritize": [], "bind": []}
        self.refusal = ""
        self.url = ""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/extender/{verb}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.Response:
        verb, body = request.match_info["verb"], await request.json()
        self.calls[verb].append(body)
        answer = {"filter": self._filter, "prioritize": self._prioritize, "bind": self._bind}[verb]
        return web.json_response(await answer(body))

    async def _filter(self, body: Object) -> Any:
        names = body["NodeNames"]
        if self.refusal:
            return {"NodeNames": [], "FailedNodes": dict.fromkeys(names, self.refusal)}
        return {"NodeNames": names}

    async def _prioritize(self, body: Object) -> Any:
        return [{"Host": name, "Score": 5} for name in body["NodeNames"]]

    async def _bind(self, body: Object) -> Any:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": body["PodName"], "uid": body["PodUID"]},
            "target": {"kind": "Node", "name": body["Node"]},
        }
        await self.api.create(
            PODS,
            binding,
            namespace=body["PodNamespace"],
            name=body["PodName"],
            subresource="binding",
        )
        return {"Error": ""}


@pytest.fixture
async def extender(api: Api) -> AsyncIterator[StubExtender]:
    stub = StubExtender(api)
    runner = web.AppRunner(stub.app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stub.url = f"http://127.0.0.1:{runner.addresses[0][1]}/extender"
    yield stub
    await runner.cleanup()


async def node_of(api: Api, name: str) -> str | None:
    """Where a pod is bound."""
    found = await api.get(PODS, name)
    node_name: str | None = found["spec"].get("nodeName")
    return node_name


async def has_phase(api: Api, name: str, phase: str) -> bool:
    found = await api.get(PODS, name)
    return bool(found["status"].get("phase") == phase)


async def is_gone(api: Api, name: str) -> bool:
    return await api.find(PODS, name) is None


async def bound_pod(api: Api, name: str) -> Object:
    """A pod that was bound when it was made, as a static one."""
    if await api.find(NODES, "n1") is None:
        await api.create(NODES, node("n1"))
    made = pod(name)
    made["spec"]["nodeName"] = "n1"
    return await api.create(PODS, made)


async def test_control_plane_is_of_the_pinned_release(api: Api) -> None:
    version = await api.request("GET", "/version")

    assert version["gitVersion"] == "v1.36.2"
    assert await api.items(NODES) == []


async def test_kube_scheduler_alone_binds_a_pod(api: Api, start_scheduler: StartScheduler) -> None:
    start_scheduler(scheduler_configuration())
    await api.create(NODES, node("n1"))
    await api.create(PODS, pod("fits"))
    await api.create(PODS, pod("too-big", cpu="64"))

    await until(lambda: node_of(api, "fits"), "the pod is bound")

    assert await node_of(api, "too-big") is None


async def test_kube_scheduler_filters_scores_and_binds_through_an_extender(
    api: Api, start_scheduler: StartScheduler, extender: StubExtender
) -> None:
    start_scheduler(scheduler_configuration(extender.url))
    for name in ("n1", "n2"):
        await api.create(NODES, node(name))
    await api.create(PODS, pod("asks"))

    await until(lambda: node_of(api, "asks"), "the pod is bound")

    assert sorted(extender.calls["filter"][0]["NodeNames"]) == ["n1", "n2"]
    assert len(extender.calls["prioritize"]) == len(extender.calls["bind"]) == 1


async def test_kube_scheduler_tells_why_an_extender_refused(
    api: Api, start_scheduler: StartScheduler, extender: StubExtender
) -> None:
    extender.refusal = "says the stub"
    start_scheduler(scheduler_configuration(extender.url))
    await api.create(NODES, node("n1"))
    await api.create(PODS, pod("refused"))

    async def told() -> str | None:
        found = await api.get(PODS, "refused")
        conditions = found["status"].get("conditions", [])
        return next((each["message"] for each in conditions if each["type"] == "PodScheduled"), "")

    assert "says the stub" in await until(told, "the pod has a PodScheduled condition")
    assert await api.items(EVENTS, fields="reason=FailedScheduling") != []


async def test_restarted_kube_scheduler_goes_on(api: Api, start_scheduler: StartScheduler) -> None:
    scheduler = start_scheduler(scheduler_configuration())
    await api.create(NODES, node("n1"))

    scheduler.process.kill()
    await api.create(PODS, pod("waits"))
    scheduler.process.start()

    assert await until(lambda: node_of(api, "waits"), "the pod is bound") == "n1"


async def test_kubelet_runs_and_ends_a_pod(api: Api, kubelet: KubeletStandIn) -> None:
    kubelet.delays = Delays(end=NEVER)
    kubelet.delays_of["quick"] = Delays()
    for name in ("quick", "slow"):
        await bound_pod(api, name)
        await until(lambda name=name: has_phase(api, name, "Running"), "it runs")  # type: ignore[misc]

    for name in ("slow", "quick"):
        await api.delete(PODS, name)
    await until(lambda: is_gone(api, "quick"), "it is gone")

    assert "deletionTimestamp" in (await api.get(PODS, "slow"))["metadata"]
    assert await has_phase(api, "slow", "Running")


async def test_kubelet_finishes_a_pod(api: Api, kubelet: KubeletStandIn) -> None:
    kubelet.delays = Delays(finish=timedelta(milliseconds=50))

    await bound_pod(api, "job")

    await until(lambda: has_phase(api, "job", "Succeeded"), "it has finished")


async def test_kubelet_resizes_a_pod(api: Api, kubelet: KubeletStandIn) -> None:
    await bound_pod(api, "grows")
    await until(lambda: has_phase(api, "grows", "Running"), "it runs")
    wanted = {"requests": {"cpu": "300m", "memory": "128Mi"}}
    patch = {"spec": {"containers": [{"name": "main", "resources": wanted}]}}

    await api.patch(PODS, "grows", patch, subresource="resize", strategy="strategic")

    async def has_room() -> bool:
        found = await api.get(PODS, "grows")
        return bool(found["status"]["containerStatuses"][0]["resources"] == wanted)

    await until(has_room, "the status agrees")


async def test_kubelet_outlives_the_api_server(binaries: Binaries) -> None:
    with ControlPlane(binaries) as control_plane:
        async with control_plane.api() as api, KubeletStandIn(api):
            await bound_pod(api, "before")
            await until(lambda: has_phase(api, "before", "Running"), "it runs")

            control_plane.kube_apiserver.kill()
            await asyncio.to_thread(control_plane.kube_apiserver.start)
            await bound_pod(api, "after")

            await until(lambda: has_phase(api, "after", "Running"), "it runs")


async def test_service_account_may_do_what_its_role_says(
    control_plane: ControlPlane, api: Api
) -> None:
    token = await api.service_account("nobody")

    async with control_plane.api(token) as nobody:
        with pytest.raises(ApiError) as refused:
            await nobody.items(PODS)
        await api.create(CLUSTER_ROLES, cluster_role("looks", ("", "pods", "get,list")))
        await api.create(CLUSTER_ROLE_BINDINGS, cluster_role_binding("looks", account="nobody"))

        async def looks() -> bool:
            try:
                return await nobody.items(PODS) == []
            except ApiError:
                return False

        await until(looks, "the role holds")
        with pytest.raises(ApiError, match="cannot create resource"):
            await nobody.create(PODS, pod("forbidden"))
    assert refused.value.status == 403
    assert "system:serviceaccount:default:nobody" in refused.value.message


async def test_neonvm_objects_are_kept_and_checked(api: Api) -> None:
    await api.install_neonvm()

    machine = await api.create(VMS, vm("compute"))
    runner = await api.create(PODS, vm_pod(machine, "compute-abcde"))
    await api.create(MIGRATIONS, migration("moves", vm_name="compute"))
    status = {"status": {"sourcePodName": "compute-abcde", "phase": "Running"}}
    moves = await api.patch(MIGRATIONS, "moves", status, subresource="status")
    with pytest.raises(ApiError, match="memorySlots"):
        await api.create(VMS, vm("bad", slots=(0, 1, 8)))

    assert runner["metadata"]["ownerReferences"][0]["uid"] == machine["metadata"]["uid"]
    assert moves["status"]["phase"] == "Running"


async def test_watch_reports_what_happens_after_a_list(api: Api) -> None:
    since = (await api.listing(NODES)).resource_version
    await api.create(NODES, node("n1"))
    await api.delete(NODES, "n1")

    seen = []
    async with api.watch(NODES, since=since) as events:
        async for event in events:
            seen.append((event.type, event.object["metadata"]["name"]))
            if event.type == "DELETED":
                break

    assert seen == [("ADDED", "n1"), ("DELETED", "n1")]


async def test_dry_run_judges_a_manifest_and_keeps_nothing(api: Api) -> None:
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "kube-system"},
        "data": {"key": "value"},
    }

    applied = await api.apply(config_map, is_dry_run=True)
    with pytest.raises(ApiError, match="dada"):
        await api.apply(config_map | {"dada": {}}, is_dry_run=True)

    assert applied["data"] == {"key": "value"}
    with pytest.raises(ApiError, match="404"):
        await api.request("GET", "/api/v1/namespaces/kube-system/configmaps/settings")


def test_without_go_and_assets_the_failure_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)

    with pytest.raises(MissingBinariesError, match="install Go, or name a folder"):
        build_binaries()


def test_assets_must_hold_all_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "etcd").touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))

    with pytest.raises(MissingBinariesError, match="kube-apiserver, kube-scheduler not in"):
        build_binaries()


def test_programs_end_with_their_owner_however_that_dies(binaries: Binaries) -> None:
    owner = """if True:
        import os, signal
        from tests.e2e.harness.binaries import find_binaries
        from tests.e2e.harness.control_plane import *
        cluster = ControlPlane(find_binaries()).__enter__()
        scheduler = Scheduler(cluster, scheduler_configuration()).__enter__()
        for each in (cluster.etcd, cluster.kube_apiserver, scheduler.process):
            print(each.pid, each.folder, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)"""

    done = subprocess.run([sys.executable, "-c", owner], cwd=ROOT, capture_output=True, check=False)

    # The watchdogs hold the owner's stdout: run() has returned, so they have ended.
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    assert len(lines) == 3, done.stderr.decode()
    # Killed they are, but a large one takes a moment to be gone.
    end = time.monotonic() + 10
    while any(is_running(int(pid)) for pid, _ in lines) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(is_running(int(pid)) for pid, _ in lines)
    assert not any(Path(folder).exists() for _, folder in lines)


def is_running(pid: int) -> bool:
    """Also false for a zombie: in a container nobody may reap an orphan."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
