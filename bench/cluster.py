"""A cluster of any size as Kubernetes objects, one after the other, of the shape of real ones.

The same size and seed give the same objects. What is bound fits: no node is over its capacity, and
VMs have room to grow where the nodes are not small.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

SCHEDULER = "autoscale-scheduler"
CREATED = "2026-01-01T00:00:00Z"
ZONES = ("eu-central-1a", "eu-central-1b", "eu-central-1c")
MACHINES = (("m6i.4xlarge", 16, 64), ("m6i.8xlarge", 32, 128), ("m6i.2xlarge", 8, 32))
"""Instance type, CPUs and GiB."""

POD_SIZES = ((50, 64), (100, 128), (250, 256), (100, 512), (200, 1024))
"""Millicores and MiB."""

VM_SIZES = ((1, 4), (2, 8), (1, 16))
"""Compute units of 250m and 1 GiB in use, and the most."""

PODS_A_NODE = 110
"""The kubelet's own limit."""

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many of what, and which of all such clusters."""

    nodes: int
    pods: int
    """All of them, those that run VMs too."""
    vms: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        if min(self.nodes, self.pods, self.vms) < 0 or self.nodes == 0:
            raise ValueError("nodes must be at least 1, pods and vms at least 0")
        if self.vms > self.pods:
            raise ValueError("vms must not be more than pods: each runs in a pod")


def node_name(number: int) -> str:
    """As clouds name them."""
    third, fourth = divmod(number, 250)
    return f"ip-10-{third // 250}-{third % 250}-{fourth + 4}.eu-central-1.compute.internal"


def vm_name(number: int) -> str:
    """Of a VirtualMachine."""
    return f"compute-quiet-sun-{number:06}"


def vm_pod_name(number: int) -> str:
    """Of the pod that runs it."""
    return f"{vm_name(number)}-{number % 99_991:05}"


def objects(size: Size) -> Iterator[Json]:
    """Nodes, then pods, then VMs, each whole. Only sums are kept, so size is no matter."""
    source = random.Random(f"objects {size}")  # noqa: S311 - repeatable, not secret
    versions = iter(range(1000, 1 << 40))
    room = []
    for number in range(size.nodes):
        machine = MACHINES[number % len(MACHINES)]
        room.append(_Room(node_name(number), machine[1] * 1000, machine[2] * 1024, PODS_A_NODE))
        yield node(number, uid=_uid(source), version=next(versions))
    for number in range(size.pods):
        is_vm = number < size.vms
        made = vm_pod if is_vm else plain_pod
        needs = _vm_most(number) if is_vm else POD_SIZES[number % len(POD_SIZES)]
        yield made(number, _place(source, room, needs), uid=_uid(source), version=next(versions))
    for number in range(size.vms):
        yield virtual_machine(number, version=next(versions))


@dataclass(slots=True)
class _Room:
    name: str
    cpu: int
    mem: int
    pods: int

    def take(self, cpu: int, mem: int) -> bool:
        if min(self.cpu - cpu, self.mem - mem, self.pods - 1) < 0:
            return False
        self.cpu, self.mem, self.pods = self.cpu - cpu, self.mem - mem, self.pods - 1
        return True


def _place(source: random.Random, room: list[_Room], needs: tuple[int, int]) -> str:
    """A node with room for as much; empty: found none in a few tries, the pod stays pending."""
    for _ in range(20):
        found = source.choice(room)
        if found.take(*needs):
            return found.name
    return ""


def _vm_most(number: int) -> tuple[int, int]:
    most = VM_SIZES[number % len(VM_SIZES)][1]
    return most * 250, most * 1024


def _uid(source: random.Random) -> str:
    return str(uuid.UUID(int=source.getrandbits(128), version=4))


def vm_uid(number: int) -> str:
    """Of a VirtualMachine; its pod names it too."""
    return str(uuid.UUID(int=number + (1 << 100), version=4))


def node(number: int, *, uid: str = "", version: int = 1, images: int = 0) -> Json:
    """A node, ready and empty; 50 images make it about as large as most real ones are."""
    machine, cpus, gib = MACHINES[number % len(MACHINES)]
    name, zone = node_name(number), ZONES[number % len(ZONES)]
    amounts = {
        "cpu": str(cpus),
        "ephemeral-storage": "104845292Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": f"{gib * 1024}Mi",
        "pods": str(PODS_A_NODE),
    }
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/instance-type": machine,
        "beta.kubernetes.io/os": "linux",
        "failure-domain.beta.kubernetes.io/region": "eu-central-1",
        "failure-domain.beta.kubernetes.io/zone": zone,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": machine,
        "topology.kubernetes.io/region": "eu-central-1",
        "topology.kubernetes.io/zone": zone,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": uid,
            "resourceVersion": str(version),
            "creationTimestamp": CREATED,
            "labels": labels,
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "managedFields": [
                _managed("kubelet", "metadata", list(labels)),
                _managed("kube-controller-manager", "metadata", ["node.alpha.kubernetes.io/ttl"]),
                _managed("kubelet", "status", ["conditions", *amounts], subresource="status"),
            ],
        },
        "spec": {"providerID": f"aws:///{zone}/i-{number:017x}"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [
                _condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                _condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                _condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                _condition("Ready", "True", "KubeletReady"),
            ],
            "addresses": [
                {"type": "InternalIP", "address": name[3:].partition(".")[0].replace("-", ".")},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": f"{number:032x}",
                "systemUUID": f"{number:032x}",
                "bootID": f"{number:032x}",
                "kernelVersion": "6.12.40-63.114.amzn2023.x86_64",
                "osImage": "Amazon Linux 2023",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.36.2",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "images": [_image(at) for at in range(images)],
        },
    }


def plain_pod(number: int, node: str, *, uid: str = "", version: int = 1) -> Json:
    """A pod of a Deployment, of some 5 KiB as an API server lists it."""
    app = f"app-{number // 30:05}"
    cpu, mem = POD_SIZES[number % len(POD_SIZES)]
    labels = {
        "app.kubernetes.io/instance": app,
        "app.kubernetes.io/managed-by": "Helm",
        "app.kubernetes.io/name": app,
        "pod-template-hash": f"{number // 30:010x}",
    }
    made = _pod(f"{app}-{number // 30:010x}-{number % 100_000:05}", labels, node, cpu, mem)
    made["metadata"] |= {"uid": uid, "resourceVersion": str(version), "generation": 1}
    made["metadata"]["annotations"] = {
        "checksum/config": f"{number // 30:064x}",
        "prometheus.io/port": "9100",
        "prometheus.io/scrape": "true",
    }
    made["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": f"{app}-{number // 30:010x}",
            "uid": str(uuid.UUID(int=number // 30 + (1 << 99), version=4)),
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    return made


def vm_pod(number: int, node: str, *, uid: str = "", version: int = 1) -> Json:
    """A pod that runs a NeonVM, as NeonVM's controller makes it; autoscaled."""
    use, most = VM_SIZES[number % len(VM_SIZES)]
    labels = {
        "autoscaling.neon.tech/auto-migration-enabled": "true",
        "autoscaling.neon.tech/enabled": "true",
        "vm.neon.tech/name": vm_name(number),
    }
    made = _pod(vm_pod_name(number), labels, node, use * 250, use * 1024)
    made["metadata"] |= {"uid": uid, "resourceVersion": str(version), "generation": 1}
    made["metadata"]["annotations"] = {
        "vm.neon.tech/resources": (
            f'{{"cpus":{{"min":"250m","use":"{use * 250}m","max":"{most * 250}m"}},'
            f'"memorySlots":{{"min":1,"use":{use},"max":{most}}},"memorySlotSize":"1Gi"}}'
        ),
        "vm.neon.tech/usage": f'{{"cpu":"{use * 250}m","memory":"{use}Gi"}}',
    }
    made["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "vm.neon.tech/v1",
            "kind": "VirtualMachine",
            "name": vm_name(number),
            "uid": vm_uid(number),
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    return made


def virtual_machine(number: int, *, version: int = 1) -> Json:
    """The VirtualMachine that a pod of `vm_pod` runs."""
    use, most = VM_SIZES[number % len(VM_SIZES)]
    return {
        "apiVersion": "vm.neon.tech/v1",
        "kind": "VirtualMachine",
        "metadata": {
            "name": vm_name(number),
            "namespace": "default",
            "uid": vm_uid(number),
            "resourceVersion": str(version),
            "creationTimestamp": CREATED,
            "generation": 1,
            "labels": {"autoscaling.neon.tech/enabled": "true"},
            "managedFields": [_managed("control-plane", "spec", ["guest", "schedulerName"])],
        },
        "spec": {
            "guest": {
                "cpus": {"min": "250m", "use": f"{use * 250}m", "max": f"{most * 250}m"},
                "memorySlotSize": "1Gi",
                "memorySlots": {"min": 1, "use": use, "max": most},
                "rootDisk": {"image": "registry.example/compute:17", "size": "8Gi"},
            },
            "schedulerName": SCHEDULER,
        },
        "status": {"podName": vm_pod_name(number), "phase": "Running"},
    }


def _pod(name: str, labels: dict[str, str], node: str, cpu: int, mem: int) -> Json:
    env = [{"name": f"SETTING_{at:02}", "value": f"value-{at:02}"} for at in range(8)]
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10}
    token = "kube-api-access-" + name[-5:]
    container = {
        "name": "app",
        "image": "registry.example/team/app:1.42.0",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": env,
        "resources": {
            "limits": {"memory": f"{mem}Mi"},
            "requests": {"cpu": f"{cpu}m", "memory": f"{mem}Mi"},
        },
        "volumeMounts": [
            {"name": token, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io"}
        ],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    spec = {
        "volumes": [{"name": token, "projected": {"defaultMode": 420, "sources": _TOKEN_SOURCES}}],
        "containers": [container],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "app",
        "securityContext": {},
        "schedulerName": SCHEDULER,
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{each}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for each in ("not-ready", "unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    managed = [
        _managed("kube-controller-manager", "spec", [*labels, *container, *spec, *_env(env)])
    ]
    status: Json = {"phase": "Pending", "qosClass": "Burstable"}
    if node:
        spec["nodeName"] = node
        status = _running(name)
        managed.append(_managed("kubelet", "status", _STATUS_FIELDS, subresource="status"))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": CREATED,
            "labels": labels,
            "managedFields": managed,
        },
        "spec": spec,
        "status": status,
    }


_TOKEN_SOURCES = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {
        "downwardAPI": {
            "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
        }
    },
]
_READY = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
_STATUS_FIELDS = [
    "conditions",
    "containerStatuses",
    "hostIP",
    "phase",
    "podIP",
    "startTime",
    *_READY,
]


def _running(name: str) -> Json:
    return {
        "phase": "Running",
        "conditions": [
            {
                "type": each,
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": CREATED,
                "observedGeneration": 1,
            }
            for each in _READY
        ],
        "hostIP": "10.0.0.4",
        "podIP": "10.1.0.4",
        "podIPs": [{"ip": "10.1.0.4"}],
        "startTime": CREATED,
        "containerStatuses": [
            {
                "name": "app",
                "state": {"running": {"startedAt": CREATED}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": "registry.example/team/app:1.42.0",
                "imageID": "registry.example/team/app@sha256:" + "0" * 64,
                "containerID": "containerd://" + name[-5:].rjust(64, "0"),
                "started": True,
            }
        ],
        "qosClass": "Burstable",
    }


def _env(env: list[dict[str, str]]) -> list[str]:
    return [f'k:{{"name":"{each["name"]}"}}' for each in env]


def _managed(manager: str, part: str, fields: list[str], *, subresource: str = "") -> Json:
    named: Json = {f"f:{each}" if not each.startswith("k:") else each: {} for each in fields}
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": CREATED,
        "fieldsType": "FieldsV1",
        "fieldsV1": {f"f:{part}": named},
        **({"subresource": subresource} if subresource else {}),
    }


def _condition(kind: str, status: str, reason: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "lastHeartbeatTime": CREATED,
        "lastTransitionTime": CREATED,
        "reason": reason,
        "message": f"kubelet has reported {reason}",
    }


def _image(number: int) -> Json:
    digest = f"{number:064x}"
    return {
        "names": [
            f"registry.example/team-{number % 7}/app-{number:03}@sha256:{digest}",
            f"registry.example/team-{number % 7}/app-{number:03}:1.{number}.0",
        ],
        "sizeBytes": 100_000_000 + number,
    }
