"""What is kept beside a pod's row: what the cluster says of it and its row does not.

Of a plain pod that is nothing, and 150,000 of them cost nothing. Field names are stored: another
release reads what it knows of them.
"""

from __future__ import annotations

import msgspec

from autoscale_enforcer.ledger.outcomes import KnownPod
from autoscale_enforcer.model.facts import PodFact, VmFact
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NO_WORD, PodRow, Stage


class _Vm(msgspec.Struct, omit_defaults=True):
    """Of a VM."""

    name: str = ""
    minimum: Resources = NOTHING
    slot_bytes: int = 0
    approved: Resources = NOTHING


class _Beside(msgspec.Struct, omit_defaults=True):
    """Of a pod."""

    deleting: bool = False
    requests: Resources | None = None
    """Of one that is a VM: the row has its VM's amounts."""
    vm: _Vm | None = None
    problem: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)


_PLAIN = _Beside()
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Beside).decode


def pack_fact(fact: PodFact) -> bytes:
    """What to keep of the fact beside its row; empty where the row says it all."""
    vm = fact.vm
    beside = _Beside(
        deleting=fact.deleting,
        requests=fact.requests if fact.is_vm else None,
        vm=_Vm(vm.name, vm.minimum, vm.slot_bytes, vm.approved) if vm else None,
        problem=fact.problem,
        labels=fact.labels,
    )
    return b"" if beside == _PLAIN else _encode(beside)


def pack_whole(fact: PodFact) -> bytes:
    """All of the fact, which a release reads that takes nothing from the row."""
    return _encode(fact)


def unpack_fact(known: KnownPod | None) -> PodFact | None:
    """The fact that was booked last, of the row and what is beside it.

    None where nobody knows the pod, or what its VM's object says.
    """
    if known is None:
        return None
    row, beside = known.row, _PLAIN
    if known.blob:
        try:
            beside = _decode(known.blob)
        except (msgspec.ValidationError, msgspec.DecodeError):
            return None  # written by another release
    elif row.vm:
        return None
    namespace, _, name = row.name.partition("/")
    return PodFact(
        uid=known.uid,
        namespace=namespace,
        name=name,
        resource_version="" if row.rv == NO_WORD else row.rv,
        node=NodeName(row.node) if row.stage == Stage.BOUND else None,
        deleting=beside.deleting,
        requests=row.amount if beside.requests is None else beside.requests,
        vm=_vm_of(row, beside.vm) if beside.vm else None,
        problem=beside.problem,
        migration_source=bool(row.moving),
        labels=beside.labels,
    )


def _vm_of(row: PodRow, beside: _Vm) -> VmFact:
    is_object = row.vm_rv != NO_WORD
    return VmFact(
        name=beside.name,
        autoscaling=bool(row.scaled),
        use=Resources(row.use_cpu, row.use_mem),
        minimum=beside.minimum,
        maximum=Resources(row.max_cpu, row.max_mem),
        slot_bytes=beside.slot_bytes,
        approved=beside.approved,
        overcommit=row.overcommit,
        from_vm_object=is_object,
        vm_resource_version=row.vm_rv if is_object else "",
    )
