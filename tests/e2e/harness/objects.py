"""Kubernetes objects as tests make them: small, and valid for a real API server."""

from __future__ import annotations

import json

from tests.e2e.harness.api import RBAC, Object
from tests.e2e.harness.control_plane import SCHEDULER_NAME

IMAGE = "registry.k8s.io/pause:3.10"
"""Never pulled: nothing runs here."""


def node(name: str, *, cpu: str = "4", memory: str = "16Gi", pods: int = 110) -> Object:
    """A ready node; all that it has is allocatable."""
    room = {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "100Gi"}
    conditions = [
        {"type": kind, "status": status, "reason": "Kubelet", "message": "stand-in"}
        for kind, status in {
            "Ready": "True",
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
        }.items()
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": room, "allocatable": room, "conditions": conditions},
    }


def pod(
    name: str,
    *,
    cpu: str = "100m",
    memory: str = "128Mi",
    namespace: str = "default",
    scheduler: str = SCHEDULER_NAME,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    """A pod of one container that asks for that much; change the rest in what comes back."""
    container = {
        "name": "main",
        "image": IMAGE,
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels or {},
            "annotations": annotations or {},
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 30,
        },
    }


def vm(
    name: str,
    *,
    cpus: tuple[object, object, object] = ("250m", "250m", 2),
    slots: tuple[int, int, int] = (1, 1, 8),
    slot_size: str = "1Gi",
    namespace: str = "default",
    labels: dict[str, str] | None = None,
) -> Object:
    """A VirtualMachine; CPUs and memory slots are min, use and max."""
    return {
        "apiVersion": "vm.neon.tech/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "guest": {
                "cpus": dict(zip(("min", "use", "max"), cpus, strict=True)),
                "memorySlots": dict(zip(("min", "use", "max"), slots, strict=True)),
                "memorySlotSize": slot_size,
            },
        },
    }


def vm_pod(machine: Object, name: str) -> Object:
    """The runner pod of a VirtualMachine as read from the API, like NeonVM's controller makes."""
    metadata, guest = machine["metadata"], machine["spec"]["guest"]
    made = pod(
        name,
        cpu=str(guest["cpus"]["use"]),
        namespace=metadata["namespace"],
        labels=metadata.get("labels", {}) | {"vm.neon.tech/name": metadata["name"]},
        annotations={"vm.neon.tech/resources": json.dumps(guest)},
    )
    made["metadata"]["ownerReferences"] = [
        {
            "apiVersion": machine["apiVersion"],
            "kind": machine["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
    ]
    return made


def migration(name: str, *, vm_name: str, namespace: str = "default") -> Object:
    """A VirtualMachineMigration; its status says which pods, and is patched like any status."""
    return {
        "apiVersion": "vm.neon.tech/v1",
        "kind": "VirtualMachineMigration",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"vmName": vm_name},
    }


def cluster_role(name: str, *rules: tuple[str, str, str]) -> Object:
    """A role over the whole cluster; a rule is group, resources and verbs (with commas)."""
    return {
        "apiVersion": RBAC,
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [group], "resources": resources.split(","), "verbs": verbs.split(",")}
            for group, resources, verbs in rules
        ],
    }


def cluster_role_binding(role: str, *, account: str, namespace: str = "default") -> Object:
    """Gives that role to a service account."""
    return {
        "apiVersion": RBAC,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{role}-{account}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
