"""What each node should have promised, added up from the API's objects alone.

A second opinion: nothing of the service is imported here, and nothing of its tests' doubles.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

SUFFIXES = {"": Fraction(1), "m": Fraction(1, 1000), "k": Fraction(1000), "M": Fraction(10**6)}
SUFFIXES |= {"Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30)}


@dataclass(slots=True)
class Sum:
    """Of one node; CPU in millicores, memory in bytes."""

    pods: int = 0
    reserved_cpu: int = 0
    reserved_mem: int = 0
    committed_cpu: int = 0
    committed_mem: int = 0


def sums(pods: Iterable[Any], permits: Mapping[str, Any]) -> dict[str, Sum]:
    """By node; a permit, by `namespace/name`, is what an agent was told last."""
    found: dict[str, Sum] = defaultdict(Sum)
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if not node or pod["status"].get("phase") in {"Succeeded", "Failed"}:
            continue
        cpu, mem = amounts(pod, permits)
        factors = json.loads(annotation(pod, "vm.neon.tech/overcommit") or "{}")
        total = found[node]
        total.pods += 1
        total.committed_cpu += cpu
        total.committed_mem += mem
        total.reserved_cpu += math.floor(cpu / quantity(factors.get("cpu", 1)))
        total.reserved_mem += math.floor(mem / quantity(factors.get("memory", 1)))
    return found


def amounts(pod: Any, permits: Mapping[str, Any]) -> tuple[int, int]:
    """What one pod holds: millicores, bytes."""
    metadata = pod["metadata"]
    guest = annotation(pod, "vm.neon.tech/resources")
    if not guest:
        cpu, mem = requests(pod, "cpu"), requests(pod, "memory")
    elif permit := permits.get(f"{metadata['namespace']}/{metadata['name']}"):
        cpu, mem = quantity(permit["vCPUs"]), quantity(permit["mem"])
    else:
        plugged = json.loads(guest)
        cpu = quantity(plugged["cpus"]["use"])
        mem = quantity(plugged["memorySlotSize"]) * plugged["memorySlots"]["use"]
    return math.ceil(cpu * 1000), math.ceil(mem)


def requests(pod: Any, resource: str) -> Fraction:
    """What Kubernetes counts for a pod that runs no VM."""
    spec = pod["spec"]
    sidecars = hungriest = Fraction(0)
    for container in spec.get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            sidecars += asked(container, resource)
        else:
            hungriest = max(hungriest, sidecars + asked(container, resource))
    running = sum((asked(each, resource) for each in spec["containers"]), sidecars)
    return max(running, hungriest) + quantity(spec.get("overhead", {}).get(resource, 0))


def asked(container: Any, resource: str) -> Fraction:
    """The request of one container; the API server has written one for each limit."""
    return quantity(container.get("resources", {}).get("requests", {}).get(resource, 0))


def annotation(pod: Any, key: str) -> str:
    text: str = pod["metadata"].get("annotations", {}).get(key, "")
    return text


def quantity(written: object) -> Fraction:
    """A quantity as these tests write it."""
    found = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(written))
    assert found, written
    return Fraction(found[1]) * SUFFIXES[found[2]]


def books_of(nodes: Mapping[str, Any]) -> dict[str, Sum]:
    """The same as the service's admin port tells it, without nodes that hold nothing."""
    return {
        name: Sum(
            found["pods"],
            found["reserved"]["cpuMilli"],
            found["reserved"]["memoryBytes"],
            found["committed"]["cpuMilli"],
            found["committed"]["memoryBytes"],
        )
        for name, found in nodes.items()
        if found["pods"]
    }
