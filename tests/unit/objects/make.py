"""Kubernetes objects in few words, and the recorded answers of Kubernetes itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autoscale_enforcer.objects.decode import convert
from autoscale_enforcer.objects.shapes import NodeObject, PodObject, VmObject

DATA = Path(__file__).parents[2] / "data"

VM_RESOURCES: dict[str, Any] = {
    "cpus": {"min": "250m", "use": 1, "max": "4"},
    "memorySlots": {"min": 1, "use": 4, "max": 16},
    "memorySlotSize": "1Gi",
}


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, path.read_text().splitlines())


def amounts(cpu: object = None, memory: object = None) -> dict[str, Any]:
    return {k: v for k, v in {"cpu": cpu, "memory": memory}.items() if v is not None}


def container(cpu: object = None, memory: object = None, **more: object) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": amounts(cpu, memory)}, **more}


def sidecar(cpu: object = None, memory: object = None, **more: object) -> dict[str, Any]:
    return container(cpu, memory, restartPolicy="Always", **more)


def pod_json(
    *containers: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: object,
) -> dict[str, Any]:
    named = {"name": "web-0", "namespace": "default", "uid": "u1", "resourceVersion": "7"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**named, **(metadata or {})},
        "spec": {"containers": list(containers), **spec},
        "status": status or {},
    }


def pod(
    *containers: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: object,
) -> PodObject:
    return convert(pod_json(*containers, metadata=metadata, status=status, **spec), PodObject)


def owner(kind: str, api: str = "vm.neon.tech/v1", **more: object) -> dict[str, Any]:
    return {"kind": kind, "apiVersion": api, "name": "vm-a", **more}


def vm_metadata(
    annotations: dict[str, Any] | None = None, *owners: dict[str, Any], autoscaling: bool = True
) -> dict[str, Any]:
    """Metadata of a runner pod; annotations that are not text become JSON."""
    given = {"vm.neon.tech/resources": VM_RESOURCES} if annotations is None else annotations
    return {
        "labels": {"autoscaling.neon.tech/enabled": "true"} if autoscaling else {},
        "annotations": {k: v if isinstance(v, str) else json.dumps(v) for k, v in given.items()},
        "ownerReferences": list(owners) or [owner("VirtualMachine", controller=True)],
    }


def vm_json(**metadata: object) -> dict[str, Any]:
    named = {"name": "vm-a", "namespace": "default", "uid": "v1", "resourceVersion": "99"}
    return {
        "apiVersion": "vm.neon.tech/v1",
        "kind": "VirtualMachine",
        "metadata": {**named, **metadata},
        "spec": {"guest": {**VM_RESOURCES, "rootDisk": {"image": "i"}}},
    }


def vm(**metadata: object) -> VmObject:
    return convert(vm_json(**metadata), VmObject)


def node_json(name: str = "n1", **status: object) -> dict[str, Any]:
    allocatable = {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "5"},
        "status": status or allocatable,
    }


def node(**status: Any) -> NodeObject:
    return convert(node_json(**status), NodeObject)
