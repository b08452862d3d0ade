"""Objects to put into the store, small or of the size that real ones have."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def pod(
    name: str,
    *,
    node: str = "",
    cpu: str = "100m",
    memory: str = "64Mi",
    phase: str = "",
    padding: int = 0,
    **metadata: Any,
) -> Json:
    """A pod of one container; `padding` is how many bytes of annotation it drags along."""
    if padding:
        metadata["annotations"] = {"padding": "x" * padding}
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    spec: Json = {"schedulerName": "default-scheduler", "containers": [container]}
    if node:
        spec["nodeName"] = node
    return {
        "metadata": {"name": name, **metadata},
        "spec": spec,
        "status": {"phase": phase or ("Running" if node else "Pending")},
    }


def node(name: str, *, cpu: str = "8", memory: str = "32Gi", **metadata: Any) -> Json:
    """A node whose capacity is what is allocatable."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    return {"metadata": {"name": name, **metadata}, "spec": {}, "status": status}


def virtual_machine(
    name: str, *, cpus: tuple[Any, Any, Any] = (1, 1, 4), slots: tuple[int, int, int] = (1, 1, 4)
) -> Json:
    """A NeonVM; `cpus` and `slots` are what is least, in use and most."""
    parts = ("min", "use", "max")
    guest = {
        "cpus": dict(zip(parts, cpus, strict=True)),
        "memorySlotSize": "1Gi",
        "memorySlots": dict(zip(parts, slots, strict=True)),
    }
    return {"metadata": {"name": name}, "spec": {"guest": guest}}


def big_pod(number: int, *, node: str) -> Json:
    """A pod as heavy as a real one, some 5 KiB: managed fields, probes, volumes, conditions."""
    made = pod(f"pod-{number:06}", node=node, labels={"app": f"app-{number % 500}", "tier": "web"})
    made["metadata"]["managedFields"] = [
        {
            "manager": "kubelet",
            "operation": "Update",
            "fieldsV1": {f"f:field-{at}": {} for at in range(60)},
        }
    ]
    main = made["spec"]["containers"][0]
    main["env"] = [{"name": f"SETTING_{at}", "value": f"value of {at}"} for at in range(20)]
    main["volumeMounts"] = [{"name": f"volume-{at}", "mountPath": f"/mnt/{at}"} for at in range(5)]
    made["spec"]["volumes"] = [{"name": f"volume-{at}", "emptyDir": {}} for at in range(5)]
    made["spec"]["tolerations"] = [{"key": f"node.kubernetes.io/{at}"} for at in ("not-ready", "x")]
    made["status"]["conditions"] = [
        {"type": each, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for each in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    made["status"]["containerStatuses"] = [
        {"name": "main", "ready": True, "image": "registry/app:1", "imageID": "sha256:" + "0" * 64}
    ]
    return made
