"""VM runner pods: which pods are VMs, and what the VM is plugged with.

A pod runs a VM if a VirtualMachine of the group `vm.neon.tech` owns it, in any version and
whether or not it is the controller (a migration controls its target pod). A label proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.facts import VmFact
from autoscale_enforcer.model.resources import (
    MAX_MEM_BYTES,
    NO_OVERCOMMIT,
    NOTHING,
    OVERCOMMIT_ONE,
    Overcommit,
    Resources,
)
from autoscale_enforcer.objects.decode import decode, read_at
from autoscale_enforcer.objects.identity import version_of
from autoscale_enforcer.objects.quantity import cpu_milli, mem_bytes, ratio_thousandths
from autoscale_enforcer.objects.shapes import (
    Bounds,
    Guest,
    KubeStruct,
    Metadata,
    PodObject,
    VmObject,
    VmSpec,
)

Read = TypeVar("Read")

VM_GROUP = "vm.neon.tech"
RESOURCES = "vm.neon.tech/resources"
OVERCOMMIT = "vm.neon.tech/overcommit"
APPROVED = "internal.autoscaling.neon.tech/resources-approved"
VM_NAME_LABEL = "vm.neon.tech/name"
"""Shown and searched by; what is a VM's pod is decided by its owner."""
AUTOSCALING_LABEL = "autoscaling.neon.tech/enabled"


def vm_owner(pod: PodObject) -> str | None:
    """The name of the VirtualMachine (same namespace) whose pod this is; None for other pods."""
    metadata = pod.metadata or Metadata()
    for owner in metadata.owner_references or ():
        if owner.kind == "VirtualMachine" and is_vm_group(owner.api_version):
            return owner.name or ""
    return None


def is_vm_group(api_version: str | None) -> bool:
    """Whether this is some version of NeonVM's API; KubeVirt has a kind of the same name."""
    return (api_version or "").startswith(f"{VM_GROUP}/")


def read_vm(pod: PodObject, name: str, vm: VmObject | None) -> VmFact:
    """The VM of a pod for which `vm_owner` gave the name; `vm` is its object, where known.

    The pod's annotations count; without that of its resources (NeonVM before v0.27) the VM object
    does, with its label for autoscaling and its overcommit. Of a pod that has it the object is
    never asked, so that whoever sees the pod alone, in a filter, knows the same of it. Raises
    ObjectError whose words name what is missing or broken.
    """
    pod_metadata = pod.metadata or Metadata()
    vm_metadata = (vm and vm.metadata) or Metadata()
    text = (pod_metadata.annotations or {}).get(RESOURCES)
    labels = (vm_metadata if text is None else pod_metadata).labels or {}
    autoscaling = labels.get(AUTOSCALING_LABEL) == "true"
    factors = _annotation(pod_metadata, OVERCOMMIT, _factors)
    if factors is None and text is None:
        factors = _annotation(vm_metadata, OVERCOMMIT, _factors)
    approved = _annotation(pod_metadata, APPROVED, _approved) if autoscaling else None
    plugged = _annotation(pod_metadata, RESOURCES, _from_text) or _from_object(name, vm)
    return VmFact(
        name=name,
        autoscaling=autoscaling,
        use=plugged.use,
        minimum=plugged.minimum,
        maximum=plugged.maximum,
        slot_bytes=plugged.slot_bytes,
        approved=approved or NOTHING,
        overcommit=factors or NO_OVERCOMMIT,
        from_vm_object=text is None,
        vm_resource_version=_version(name, vm_metadata) if text is None else "",
    )


def _version(name: str, metadata: Metadata) -> str:
    try:
        return version_of(metadata)
    except ObjectError as error:
        raise ObjectError(f"VirtualMachine {name}: {error.path}", error.reason) from error


@dataclass(frozen=True, slots=True)
class _Plugged:
    use: Resources
    minimum: Resources
    maximum: Resources
    slot_bytes: int


def _from_text(text: str) -> _Plugged:
    return _plugged(decode(text, Guest))


def _from_object(name: str, vm: VmObject | None) -> _Plugged:
    if vm is None:
        reason = f"missing, and VirtualMachine {name} is not known"
        raise ObjectError(_path(RESOURCES), reason)
    guest = (vm.spec or VmSpec()).guest or Guest()
    return read_at(f"VirtualMachine {name}: spec.guest", _plugged, guest)


def _plugged(guest: Guest) -> _Plugged:
    """Use may lie outside the bounds: it is a fact. Bounds that exclude everything are refused."""
    slot_bytes = _needed("memorySlotSize", mem_bytes, guest.memory_slot_size)
    if slot_bytes == 0:
        raise ObjectError("memorySlotSize", "is zero")
    cpus, slots = guest.cpus or Bounds(), guest.memory_slots or Bounds()

    def amount(name: str) -> Resources:
        cpu = _needed(f"cpus.{name}", cpu_milli, getattr(cpus, name))
        count = _needed(f"memorySlots.{name}", _slot_count, getattr(slots, name))
        if count * slot_bytes > MAX_MEM_BYTES:
            raise ObjectError(f"memorySlots.{name}", f"is more than {MAX_MEM_BYTES} bytes")
        return Resources(cpu, count * slot_bytes)

    plugged = _Plugged(amount("use"), amount("min"), amount("max"), slot_bytes)
    if plugged.minimum.cpu > plugged.maximum.cpu:
        raise ObjectError("cpus", "min is above max")
    if plugged.minimum.mem > plugged.maximum.mem:
        raise ObjectError("memorySlots", "min is above max")
    return plugged


def _slot_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ObjectError("", "is not a whole number")
    if value < 0:
        raise ObjectError("", "is negative")
    return value


class _ApprovedText(KubeStruct):
    """Upstream writes vCPUs and mem; the other names are those of the usage annotation."""

    v_cpus: Any = msgspec.field(default=None, name="vCPUs")
    mem: Any = None
    cpu: Any = None
    memory: Any = None


def _approved(text: str) -> Resources:
    approved = decode(text, _ApprovedText)
    cpu = approved.cpu if approved.v_cpus is None else approved.v_cpus
    mem = approved.memory if approved.mem is None else approved.mem
    return Resources(_needed("cpu", cpu_milli, cpu), _needed("memory", mem_bytes, mem))


class _FactorsText(KubeStruct):
    cpu: Any = None
    memory: Any = None


def _factors(text: str) -> Overcommit:
    factors = decode(text, _FactorsText)
    return Overcommit(cpu=_factor("cpu", factors.cpu), mem=_factor("memory", factors.memory))


def _factor(path: str, value: object) -> int:
    return OVERCOMMIT_ONE if value is None else read_at(path, ratio_thousandths, value)


def _needed(path: str, read: Callable[[object], int], value: object) -> int:
    if value is None:
        raise ObjectError(path, "missing")
    return read_at(path, read, value)


def _annotation(metadata: Metadata, key: str, read: Callable[[str], Read]) -> Read | None:
    text = (metadata.annotations or {}).get(key)
    return None if text is None else read_at(_path(key), read, text)


def _path(key: str) -> str:
    return f"metadata.annotations['{key}']"
