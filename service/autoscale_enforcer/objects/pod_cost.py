"""What a pod costs a node by Kubernetes' own rule: `resource.PodRequests` of component-helpers
v0.36 with the options that kube-scheduler 1.36 gives it.

- Containers run together, sidecars (restartable init containers) with them; each plain init
  container runs beside the sidecars that stand before it, and the hungriest step counts (KEP-753).
- While a resize is under way, a container counts with the largest of what it asks, what the node
  has allocated and what is in force; what the node called infeasible is not counted (KEP-1287).
- Pod-level requests replace the sum of the containers, but only for the resources that they name
  (KEP-2837). Overhead comes on top.

CPU and memory never mix, and quantities are added up before they are rounded, as the scheduler
does. Two things that the API server and newer releases do are done here too: limits stand in for
missing requests, and an allocation counts even where the node reports nothing in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.resources import MAX_CPU_MILLI, MAX_MEM_BYTES, Resources
from autoscale_enforcer.objects.decode import read_at
from autoscale_enforcer.objects.quantity import NANO, NANO_PER_MILLI, cpu_nano, mem_nano, round_up
from autoscale_enforcer.objects.shapes import (
    Condition,
    Container,
    ContainerStatus,
    PodObject,
    PodSpec,
    PodStatus,
    Requirements,
    ResizeStatus,
    ResourceList,
)


def pod_requests(pod: PodObject) -> Resources:
    """What kube-scheduler counts for this pod, in whole millicores and bytes, rounded up.

    Raises ObjectError with the path of the quantity that cannot be read.
    """
    spec, status = pod.spec or PodSpec(), pod.status or PodStatus()
    infeasible = _is_resize_infeasible(status.conditions or ())
    reported = _reported(status)
    cpu = _Rule(_CPU, infeasible, reported).total(spec, status)
    mem = _Rule(_MEMORY, infeasible, reported).total(spec, status)
    return Resources(round_up(cpu, NANO_PER_MILLI), round_up(mem, NANO))


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of the two resources and how its quantities are read, in billionths."""

    name: str
    read: Callable[[object], int]
    largest: int

    def amount(self, amounts: ResourceList | None) -> int | None:
        """What the list says of this resource; None where it does not name it."""
        value = None if amounts is None else getattr(amounts, self.name)
        return None if value is None else read_at(self.name, self.read, value)

    def asked(self, resources: Requirements | None) -> int | None:
        """The request; the limit where there is none, as the API server fills it in."""
        if resources is None:
            return None
        request = read_at("requests", self.amount, resources.requests)
        return read_at("limits", self.amount, resources.limits) if request is None else request

    def given(self, status: ResizeStatus) -> int | None:
        """The larger of what the node has allocated and what is in force; None: not reported."""
        allocated = read_at("allocatedResources", self.amount, status.allocated_resources)
        if status.resources is None:
            return allocated
        in_force = read_at("resources.requests", self.amount, status.resources.requests)
        return max(allocated or 0, in_force or 0)


_CPU = _Kind("cpu", cpu_nano, MAX_CPU_MILLI * NANO_PER_MILLI)
_MEMORY = _Kind("memory", mem_nano, MAX_MEM_BYTES * NANO)


@dataclass(slots=True)
class _Rule:
    """The rule for one resource of one pod."""

    kind: _Kind
    infeasible: bool
    reported: dict[str | None, tuple[str, ContainerStatus]]

    def total(self, spec: PodSpec, status: PodStatus) -> int:
        total = self.containers(spec)
        pod_level = self.pod_level(spec, status)
        if pod_level is not None:
            total = pod_level
        total += read_at("spec.overhead", self.kind.amount, spec.overhead) or 0
        if total > self.kind.largest:
            raise ObjectError("spec", f"the pod's {self.kind.name} adds up to an absurd amount")
        return total

    def containers(self, spec: PodSpec) -> int:
        running = sidecars = hungriest = 0
        for index, container in enumerate(spec.containers or ()):
            running += self.container(f"spec.containers[{index}].resources", container)
        for index, container in enumerate(spec.init_containers or ()):
            path = f"spec.initContainers[{index}].resources"
            if container.restart_policy == "Always":
                sidecars += self.container(path, container)
            else:  # never resized, so its status does not count
                step = read_at(path, self.kind.asked, container.resources) or 0
                hungriest = max(hungriest, sidecars + step)
        return max(running + sidecars, hungriest)

    def container(self, path: str, container: Container) -> int:
        asked = read_at(path, self.kind.asked, container.resources) or 0
        return self.effective(asked, *self.reported.get(container.name, ("", None)))

    def pod_level(self, spec: PodSpec, status: PodStatus) -> int | None:
        """What replaces the sum of the containers; None where nothing does.

        A pod-level limit alone stands in for the request only where no container asks for the
        resource; else the API server fills in the containers' sum.
        """
        if spec.resources is None:
            return None
        asked = read_at("spec.resources", self.kind.asked, spec.resources)
        if asked is None:
            return None
        requested = spec.resources.requests and self.kind.amount(spec.resources.requests)
        if requested is None and self.named_by_a_container(spec):
            return None
        return self.effective(asked, "status", status)

    def named_by_a_container(self, spec: PodSpec) -> bool:
        everyone = [*(spec.containers or ()), *(spec.init_containers or ())]
        return any(self.kind.asked(container.resources) is not None for container in everyone)

    def effective(self, asked: int, path: str, status: ResizeStatus | None) -> int:
        """The request against what the node reports, if it reports anything at all."""
        given = None if status is None else read_at(path, self.kind.given, status)
        if given is None:
            return asked
        return given if self.infeasible else max(asked, given)


def _reported(status: PodStatus) -> dict[str | None, tuple[str, ContainerStatus]]:
    """The status of each container that tells of resources, by its name, with its path."""
    return {
        each.name: (f"status.{field}[{index}]", each)
        for field, statuses in (
            ("containerStatuses", status.container_statuses),
            ("initContainerStatuses", status.init_container_statuses),
        )
        for index, each in enumerate(statuses or ())
        if each.resources is not None or each.allocated_resources is not None
    }


def _is_resize_infeasible(conditions: Iterable[Condition]) -> bool:
    pending = (each.reason for each in conditions if each.type == "PodResizePending")
    return next(pending, None) == "Infeasible"
