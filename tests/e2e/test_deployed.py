"""What is shipped in `deploy/`, before a real API server."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness.api import NODES, PODS, VMS, Api, ApiError, Kind, Object, until
from tests.e2e.harness.control_plane import SCHEDULER_NAME, ControlPlane, Scheduler
from tests.e2e.harness.objects import node, pod, vm, vm_pod
from tests.e2e.harness.service import (
    Service,
    configure,
    deployed_account,
    make_own_pods,
    shipped_configuration,
)
from tests.support.api_proxy import ApiProxy, Asked
from tests.support.manifests import ENFORCER, NAMESPACE, OVERLAYS, SCHEDULER, one, read, render
from tests.support.servers import Server

LEASES = Kind("coordination.k8s.io/v1", "leases")
RIGHTS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
SCHEDULER_RIGHTS = {"ServiceAccount", "ClusterRoleBinding", "Role", "RoleBinding"}


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_api_server_accepts_every_manifest(api: Api, overlay: str) -> None:
    """As `kubectl apply -k --server-side --dry-run=server`, with unknown fields refused."""
    for manifest in render(overlay):
        applied = await api.apply(manifest, is_dry_run=True)

        assert applied["kind"] == manifest["kind"]


async def test_kube_scheduler_works_with_the_rights_and_the_configuration_shipped(
    service: Service, control_plane: ControlPlane, api: Api
) -> None:
    """It places pods, and keeps the lease under its own name."""
    for manifest in read("single-redis"):
        ours = manifest["metadata"]["name"].startswith(SCHEDULER)
        if ours and manifest["kind"] in SCHEDULER_RIGHTS:
            await api.apply(manifest)
    token = await api.service_account(SCHEDULER, namespace=NAMESPACE)
    await api.create(NODES, node("n1"))
    await api.create(PODS, pod("asks"))

    with Scheduler(control_plane, shipped_configuration(service.url), token) as scheduler:
        await until(lambda: is_bound(api, "asks"), "the pod is bound")
        began = await until(lambda: renewed(api), "it has the lease")

        async def keeps_it() -> bool:
            return bool(await renewed(api) != began)

        await until(keeps_it, "it has renewed the lease")
        assert "forbidden" not in scheduler.process.log()


async def is_bound(api: Api, name: str) -> bool:
    return "nodeName" in (await api.get(PODS, name))["spec"]


async def renewed(api: Api) -> str:
    found = await api.find(LEASES, SCHEDULER, namespace=NAMESPACE)
    return found["spec"]["renewTime"] if found else ""


async def test_service_may_change_its_own_pods_only(
    control_plane: ControlPlane, api: Api, kubeconfig: Path
) -> None:
    """With its token alone, the image of any pod in kube-system could be changed."""
    del kubeconfig
    await make_own_pods(api)
    await api.create(PODS, pod("of-others", namespace=NAMESPACE))
    touch = {"metadata": {"annotations": {"touched": "yes"}}}

    async with control_plane.api(await deployed_account(api)) as ours:

        async def is_refused() -> bool:
            try:
                await ours.patch(PODS, "of-others", touch, namespace=NAMESPACE)
            except ApiError as error:
                return error.status == 403 and "changes its own pods only" in error.message
            return False

        await until(is_refused, "the policy holds")
        changed = await ours.patch(PODS, "r1", touch, namespace=NAMESPACE)

    assert changed["metadata"]["annotations"]["touched"] == "yes"


async def test_service_uses_each_of_its_rights_and_misses_none(
    control_plane: ControlPlane, api: Api, valkey_server: Server, tmp_path: Path
) -> None:
    """Named as `verb resource`; what nobody uses is not granted."""
    await api.install_neonvm()
    await configure(api, {"scoring": {}})
    await make_own_pods(api, 1)
    await api.create(NODES, node("n1"))
    token = await deployed_account(api)
    async with ApiProxy(control_plane.url, control_plane.ca_file) as proxy:
        kubeconfig = proxy.kubeconfig(token, tmp_path)
        async with Service(valkey_server, kubeconfig, count=1) as service:
            await do_everything(api, service, proxy)
        asked = proxy.asked

    assert {right(each) for each in asked} == granted(read("single-redis"))
    assert [each for each in asked if each.status in {401, 403}] == []


@pytest.mark.parametrize(
    "lacked",
    [
        "get namespaces",
        "watch configmaps",
        "list nodes",
        "watch pods",
        "list virtualmachines",
        "create pods/binding",
        "patch pods/status",
        "patch pods",
    ],
)
async def test_a_right_that_is_missing_is_named(
    control_plane: ControlPlane, api: Api, valkey_server: Server, tmp_path: Path, lacked: str
) -> None:
    await api.install_neonvm()
    await configure(api, {"scoring": {}})
    await make_own_pods(api, 1)
    await api.create(NODES, node("n1"))
    token = await account_without(api, lacked)
    async with (
        ApiProxy(control_plane.url, control_plane.ca_file) as proxy,
        Service(valkey_server, proxy.kubeconfig(token, tmp_path), count=0) as service,
    ):
        replica = service.add("r1")
        is_ready = replica.process.is_ready
        replica.process.is_ready = lambda: is_ready() or "missing permission" in replica.log()

        await replica.start()
        service.replicas.append(replica)
        error = ""
        if lacked.startswith(("create", "patch")):
            if lacked == "patch pods/status":
                proxy.drop("POST", "/binding$")
            error = await service.bind(await api.create(PODS, pod("asks")), "n1")

        async def is_named() -> bool:
            return f"missing permission to {lacked}: " in replica.log() + error

        await until(is_named, "the log, or the answer, names it", within=10)


async def account_without(api: Api, lacked: str) -> str:
    """A token of an account like the deployed one, which lacks one right."""
    verb, resource = lacked.split()
    ours = [each for each in read("single-redis") if each["metadata"]["name"] == ENFORCER]
    for manifest in ours:
        if manifest["kind"] not in RIGHTS:
            continue
        for rule in manifest.get("rules", []):
            if resource in rule["resources"] and verb in rule["verbs"]:
                others = [each for each in rule["verbs"] if each != verb]
                rule["verbs"] = others or ["deletecollection"]  # no rule is without a verb
        for renamed in [manifest["metadata"], *manifest.get("subjects", [])]:
            renamed["name"] = "lacking"
        if "roleRef" in manifest:
            manifest["roleRef"]["name"] = "lacking"
        await api.apply(manifest)
    return await api.service_account("lacking", namespace=NAMESPACE)


async def do_everything(api: Api, service: Service, proxy: ApiProxy) -> None:
    """All that makes the service ask something of the API server."""
    machine = await api.create(VMS, vm("old"))
    old = vm_pod(machine, "old-pod")
    del old["metadata"]["annotations"]["vm.neon.tech/resources"]  # as before NeonVM v0.27
    await service.filter(await api.create(PODS, old), "n1", "nobody-knows")
    await service.bind(await api.create(PODS, pod("binds")), "n1")
    unclear = await api.create(PODS, pod("unclear"))
    proxy.hold("POST", "/unclear/binding$")
    assert await service.bind(unclear, "n1") == "no answer in time: ask again"
    await until(lambda: is_outdated(proxy), "the bind is given up")
    proxy.calm()
    await until(lambda: has_label(api), "the replica's pod has the label")


async def is_outdated(proxy: ApiProxy) -> bool:
    return bool(proxy.count("PATCH", "/unclear/status$"))


async def has_label(api: Api) -> bool:
    return bool(await api.items(PODS, namespace=NAMESPACE, labels=f"name={SCHEDULER_NAME}"))


def right(asked: Asked) -> str:
    """What RBAC calls it."""
    path, _, query = asked.path.partition("?")
    found = re.fullmatch(
        r"/(?:api|apis/[^/]+)/v1(?:/namespaces/(?P<within>[^/]+)(?=/))?/(?P<plural>[a-z]+)"
        r"(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?",
        path,
    )
    assert found, path
    resource = "/".join(part for part in (found["plural"], found["sub"]) if part)
    verb = {"POST": "create", "PATCH": "patch", "GET": "get" if found["name"] else "list"}
    return f"{'watch' if 'watch=' in query else verb[asked.method]} {resource}"


def granted(manifests: Iterable[Object]) -> set[str]:
    """Of both roles; which namespaces and names they are for is not looked at."""
    ours = list(manifests)
    rules: list[Any] = [
        rule for kind in ("ClusterRole", "Role") for rule in one(ours, kind, ENFORCER)["rules"]
    ]
    return {
        f"{verb} {resource}"
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
