"""Concurrent clients against running replicas, which record what they ask and are told.

    await run(targets, seed=1, clients=64, until=event.is_set, recorder=recorder)

The cluster must hold `cluster_objects(...)` of the same clients before the replicas start.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import aiohttp

from autoscale_enforcer.model.resources import Resources
from tests.history.clients import (
    GIB,
    MOST,
    NAMESPACE,
    UNIT,
    Client,
    Cluster,
    Json,
    Targets,
    plain_pod,
)
from tests.history.record import Op, Recorder

__all__ = ["ApiCluster", "Cluster", "Targets", "cluster_file", "cluster_objects", "run"]


async def run(
    targets: Targets,
    *,
    seed: int,
    clients: int,
    until: Callable[[], bool],
    recorder: Recorder,
) -> None:
    """Act until `until` says so, which is asked before each act; then all calls have ended.

    Nodes and VMs are recorded as known at the start. Errors of the service are part of the
    history and raise nothing.
    """
    placed = known_at_start(targets, recorder, clients)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        actors = [
            Client(number, seed, targets, http, recorder, uid, node)
            for number, (uid, node) in enumerate(placed)
        ]
        await actors[0].read()  # where nothing waits for VMs, all is judged from here on
        async with asyncio.TaskGroup() as group:
            for actor in actors:
                group.create_task(actor.run(until))


def known_at_start(targets: Targets, recorder: Recorder, clients: int) -> list[tuple[str, str]]:
    """Record what the cluster has before anybody asks; each client's VM, and the node it is on."""
    for name, capacity in targets.nodes.items():
        recorder.known(Op.NODE, node=name, asked=(capacity.cpu, capacity.mem))
    # A ledger that was just built waits for the VMs of each node, as after a loss.
    recorder.known(Op.EPOCH)
    nodes = list(targets.nodes)
    placed = [(vm_name(number), nodes[number % len(nodes)]) for number in range(clients)]
    amounts = {"asked": (UNIT.cpu, UNIT.mem), "most": (MOST.cpu, MOST.mem)}
    for uid, node in placed:
        recorder.known(Op.BOUND, pod=uid, node=node, **amounts)
    return placed


def cluster_objects(nodes: Mapping[str, Resources], *, clients: int) -> list[Json]:
    """The nodes, and a bound VM pod for each client."""
    names = list(nodes)
    return [
        *(_node(name, capacity) for name, capacity in nodes.items()),
        *(_vm_pod(number, names[number % len(names)]) for number in range(clients)),
    ]


def cluster_file(path: Path, nodes: Mapping[str, Resources], *, clients: int) -> Path:
    """The same as a file, for `--cluster file:PATH`."""
    items = cluster_objects(nodes, clients=clients)
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


def vm_name(number: int) -> str:
    """Name and UID of the VM pod of that client."""
    return f"vm-{number}"


class ApiCluster:
    """Pods of a Kubernetes API without credentials, such as the fake one."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._pods, self._http = f"{url}/api/v1/namespaces", http

    async def create(self, pod: Json) -> None:
        """`pod` gets the UID and the version that the API gives it."""
        url = f"{self._pods}/{pod['metadata']['namespace']}/pods"
        sent = {key: pod["metadata"][key] for key in ("name", "namespace")}
        async with self._http.post(url, json={**pod, "metadata": sent}) as answer:
            answer.raise_for_status()
            pod["metadata"] = (await answer.json())["metadata"]

    async def delete(self, namespace: str, name: str) -> None:
        """At once; one that is not there is fine."""
        body = {"gracePeriodSeconds": 0}
        async with self._http.delete(f"{self._pods}/{namespace}/pods/{name}", json=body) as answer:
            if answer.status != 404:
                answer.raise_for_status()


def _node(name: str, capacity: Resources) -> Json:
    allocatable = {"cpu": f"{capacity.cpu}m", "memory": str(capacity.mem), "pods": "1000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"},
        "spec": {},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def _vm_pod(number: int, node: str) -> Json:
    cpus = {"min": "250m", "use": "250m", "max": f"{MOST.cpu}m"}
    slots = {"min": 1, "use": 1, "max": MOST.mem // GIB}
    size = {"cpus": cpus, "memorySlots": slots, "memorySlotSize": "1Gi"}
    pod = plain_pod(vm_name(number), UNIT)
    pod["metadata"] |= {
        "namespace": NAMESPACE,
        "labels": {"autoscaling.neon.tech/enabled": "true"},
        "annotations": {"vm.neon.tech/resources": json.dumps(size)},
        "ownerReferences": [
            {"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "name": vm_name(number)}
        ],
    }
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": "Running"}
    return pod
