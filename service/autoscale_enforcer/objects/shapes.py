"""The fields that we read of each Kubernetes object, and nothing else of it.

Unknown fields are skipped and null is the same as absent, as in Go. A quantity may be a string or
a number: it is left as it came, for `quantity` says better what is wrong with it. Other modules
may embed PodObject and NodeObject in structs of their own.
"""

from __future__ import annotations

from typing import Any

import msgspec


class KubeStruct(msgspec.Struct, rename="camel", gc=False):
    """Base: Kubernetes' lowerCamelCase for our snake_case.

    What was JSON is in no cycle: Python need not walk 150,000 such objects to look for one.
    """


class OwnerReference(KubeStruct):
    """Who made an object; a pod may have several owners."""

    api_version: str | None = None
    kind: str | None = None
    name: str | None = None


class Metadata(KubeStruct):
    """Of any kind of object."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    deletion_timestamp: Any = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class ResourceList(KubeStruct):
    """Quantities by name; of the many that there may be, the two that we count."""

    cpu: Any = None
    memory: Any = None


class Requirements(KubeStruct):
    """Of a container, or of a whole pod."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


class Container(KubeStruct):
    """Also an init container; with restartPolicy Always that one is a sidecar."""

    name: str | None = None
    restart_policy: str | None = None
    resources: Requirements | None = None


class PodSpec(KubeStruct):
    """What was asked for."""

    node_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: Requirements | None = None
    overhead: ResourceList | None = None


class Condition(KubeStruct):
    """Of a pod: the reason of PodResizePending, and whether ours are Ready."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None


class ResizeStatus(KubeStruct):
    """What the node has given so far, while a resize is under way and after."""

    resources: Requirements | None = None
    allocated_resources: ResourceList | None = None


class ContainerStatus(ResizeStatus):
    """Found by the name of its container."""

    name: str | None = None


class PodStatus(ResizeStatus):
    """What the node says; the resources here are the pod's as a whole."""

    phase: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class PodObject(KubeStruct):
    """A pod."""

    metadata: Metadata | None = None
    spec: PodSpec | None = None
    status: PodStatus | None = None


class NodeStatus(KubeStruct):
    """Capacity is left out on purpose."""

    allocatable: ResourceList | None = None


class NodeObject(KubeStruct):
    """A node."""

    metadata: Metadata | None = None
    status: NodeStatus | None = None


class Bounds(KubeStruct):
    """A VM's CPUs or memory slots."""

    min: Any = None
    use: Any = None
    max: Any = None


class Guest(KubeStruct):
    """What a VM is plugged with: `spec.guest` of its object, and the pod's annotation alike."""

    cpus: Bounds | None = None
    memory_slots: Bounds | None = None
    memory_slot_size: Any = None


class VmSpec(KubeStruct):
    """Of a VirtualMachine."""

    guest: Guest | None = None


class VmObject(KubeStruct):
    """A VirtualMachine of NeonVM."""

    metadata: Metadata | None = None
    spec: VmSpec | None = None


class MigrationSpec(KubeStruct):
    """Of a VirtualMachineMigration."""

    vm_name: str | None = None


class MigrationStatus(KubeStruct):
    """How far it has come."""

    phase: str | None = None
    source_pod_name: str | None = None


class MigrationObject(KubeStruct):
    """A VirtualMachineMigration of NeonVM: one VM's pod is about to give way to another."""

    metadata: Metadata | None = None
    spec: MigrationSpec | None = None
    status: MigrationStatus | None = None


class ConfigMapObject(KubeStruct):
    """A ConfigMap."""

    metadata: Metadata | None = None
    data: dict[str, str] | None = None
