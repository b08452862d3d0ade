"""A healthy service for the workload: replicas as processes over a fake API server, or a file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from autoscale_enforcer.cluster.kubernetes.config_map import KEYS as CONFIG_KEYS
from autoscale_enforcer.cluster.kubernetes.config_map import NAME as CONFIG_NAME
from autoscale_enforcer.model.resources import Resources
from tests.history.record import Recorder
from tests.history.workload import ApiCluster, Cluster, Targets, cluster_objects
from tests.support.fake_api.server import FakeApi
from tests.support.servers import Server
from tests.support.serving import Served, serving

GIB = 1 << 30


def some_nodes(count: int, *, cpu: int = 4000, gib: int = 16) -> dict[str, Resources]:
    """So many nodes of one size."""
    return {f"n{number}": Resources(cpu, gib * GIB) for number in range(count)}


def targets_of(
    replicas: Sequence[Served], nodes: Mapping[str, Resources], cluster: Cluster | None
) -> Targets:
    """All replicas, each by its own ports."""
    return Targets(
        extenders=[each.extender for each in replicas],
        agents=[each.agent for each in replicas],
        admins=[each.admin for each in replicas],
        nodes=nodes,
        cluster=cluster,
    )


def so_many(recorder: Recorder, operations: int) -> Callable[[], bool]:
    """For `until`: when so many operations have ended."""
    return lambda: recorder.written >= operations


@asynccontextmanager
async def healthy(
    server: Server, folder: Path, nodes: Mapping[str, Resources], *, clients: int
) -> AsyncIterator[Targets]:
    """Three replicas that follow a fake API server with a VM for each client."""
    async with FakeApi() as api, aiohttp.ClientSession() as http:
        load(api, nodes, clients=clients)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(kubeconfig_of(api.url)))
        flags = ("--kubeconfig", str(kubeconfig), "--settle-after=0s", "--bind-budget=0s")
        async with serving(server.url, "kubernetes", *flags) as replicas:
            yield targets_of(replicas, nodes, ApiCluster(api.url, http))


def load(api: FakeApi, nodes: Mapping[str, Resources], *, clients: int) -> None:
    """The workload's cluster, before anybody looks."""
    api.store.create("namespaces", {"metadata": {"name": "kube-system", "uid": "cluster"}})
    config = {"metadata": {"name": CONFIG_NAME, "namespace": "kube-system"}}
    api.store.create("configmaps", config | {"data": {CONFIG_KEYS[0]: '{"scoring": {}}'}})
    for each in cluster_objects(nodes, clients=clients):
        api.store.create("nodes" if each["kind"] == "Node" else "pods", each)


def kubeconfig_of(url: str) -> dict[str, object]:
    """For an API server that asks nobody who they are."""
    context = {"cluster": "c", "user": "u"}
    return {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": context}],
        "current-context": "c",
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
