"""The rows of the ledger: the one place in Python that knows their fields.

A row is text, fields separated by single spaces: words first ('-' where there is none), then
whole numbers. `lua/lib/node_row.lua` and `lua/lib/pod_row.lua` are the twins of the two classes;
a contract test compares the field lists.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.resources import OVERCOMMIT_ONE, Overcommit, Resources

NO_WORD = "-"

Room = tuple[int, int, int, int]
"""What filter compares a pod with, as plain numbers for the thousands of nodes that it looks at:
CPU and memory that are left, pods of ignored namespaces counted; then the node's whole capacity."""


class Stage(StrEnum):
    """How far a pod's reservation has come; it only goes forward, but for a release."""

    PENDING = "pending"
    """Known, holds nothing."""
    HELD = "held"
    """Reserved, may still move; tentative."""
    BINDING = "binding"
    """A Binding is or may be on its way, may not move; tentative."""
    BOUND = "bound"
    """The cluster says so."""


class _Row:
    """Text codec shared by both kinds of row; the dataclass' field order is the row's."""

    __slots__ = ()

    def encode(self) -> str:
        """The row as the ledger keeps it."""
        return " ".join([str(getattr(self, name)) for name, _ in _fields_of(type(self))])

    @classmethod
    def decode(cls, text: str) -> Self:
        """The row that this text says; ValueError where the text is not such a row."""
        known = _fields_of(cls)
        values = text.split(" ")
        if len(values) != len(known):
            raise ValueError(f"{len(values)} fields, expected {len(known)}: {text!r}")
        return cls(
            **{
                name: int(value) if is_int else value
                for (name, is_int), value in zip(known, values, strict=True)
            }
        )


_FIELDS: dict[type, tuple[tuple[str, bool], ...]] = {}


def _fields_of(kind: Any) -> tuple[tuple[str, bool], ...]:
    """Names of a row's fields, and whether they are numbers.

    Looked up once: a compare decodes 150,000 rows, and `fields` alone would take half of that.
    """
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple((each.name, each.type == "int") for each in fields(kind))
    return _FIELDS[kind]


@dataclass(slots=True, kw_only=True)
class NodeRow(_Row):
    """What a node has, and the sums of what its pods hold. Amounts in millicores and bytes."""

    uid: str = NO_WORD
    rv: str = NO_WORD
    """resourceVersion of the node that the capacity came from."""
    config: str = NO_WORD
    """Version of the config whose `system` was taken off."""
    epoch: str = NO_WORD
    """Epoch that `heard` counts in."""
    absent: int = 0
    """1: the node has left (or was never described) while pods are on it."""
    cap_cpu: int = 0
    cap_mem: int = 0
    reserved_cpu: int = 0
    """Sum of charges, without pods of ignored namespaces. Off only where `verify` says so."""
    reserved_mem: int = 0
    committed_cpu: int = 0
    """Sum of amounts, before any overcommit discount."""
    committed_mem: int = 0
    ignored_cpu: int = 0
    """Sum of charges of pods in ignored namespaces, which only filter sees."""
    ignored_mem: int = 0
    migrating_cpu: int = 0
    """Sum of charges of pods that are the source of a migration."""
    migrating_mem: int = 0
    pressure_cpu: int = 0
    """Sum of what was asked for and not granted."""
    pressure_mem: int = 0
    pods: int = 0
    """Holds on it, ignored namespaces included."""
    vms: int = 0
    """Bound VMs with autoscaling."""
    heard: int = 0
    """Of those, how many asked in this epoch."""
    version: int = 0

    @property
    def capacity(self) -> Resources:
        """Allocatable minus `system`."""
        return Resources(self.cap_cpu, self.cap_mem)

    @property
    def reserved(self) -> Resources:
        """Sum of charges."""
        return Resources(self.reserved_cpu, self.reserved_mem)

    @property
    def committed(self) -> Resources:
        """Sum of amounts."""
        return Resources(self.committed_cpu, self.committed_mem)

    @property
    def ignored(self) -> Resources:
        """Sum of charges in ignored namespaces."""
        return Resources(self.ignored_cpu, self.ignored_mem)

    @property
    def pressure(self) -> Resources:
        """What was asked for and not granted."""
        return Resources(self.pressure_cpu, self.pressure_mem)

    @property
    def migrating(self) -> Resources:
        """Charges of migration sources."""
        return Resources(self.migrating_cpu, self.migrating_mem)

    @property
    def room(self) -> Room:
        """What is left of it, below 0 where facts have brought it over, and its capacity."""
        return (
            self.cap_cpu - self.reserved_cpu - self.ignored_cpu,
            self.cap_mem - self.reserved_mem - self.ignored_mem,
            self.cap_cpu,
            self.cap_mem,
        )

    @property
    def over_capacity(self) -> bool:
        """More is reserved than there is; only facts do that."""
        return self.reserved_cpu > self.cap_cpu or self.reserved_mem > self.cap_mem


@dataclass(slots=True, kw_only=True)
class PodRow(_Row):
    """One pod and what it holds. Amounts in millicores and bytes."""

    name: str
    """`namespace/name`."""
    node: str = NO_WORD
    stage: str = Stage.PENDING
    rv: str = NO_WORD
    vm_rv: str = NO_WORD
    """resourceVersion of the VM object; '-' where the VM's data are on the pod."""
    heard: str = NO_WORD
    """Epoch in which its agent last asked, or in which we placed it."""
    vm: int = 0
    scaled: int = 0
    """1: a VM with autoscaling; its amount is a permit."""
    broken: int = 0
    """1: a VM whose own data cannot be read."""
    ignored: int = 0
    moving: int = 0
    """1: the source of a live migration."""
    cpu: int = 0
    """Amount, before any discount. While pending: what it would ask for."""
    mem: int = 0
    charge_cpu: int = 0
    charge_mem: int = 0
    asked_cpu: int = 0
    asked_mem: int = 0
    use_cpu: int = 0
    """A VM's use as the last fact said."""
    use_mem: int = 0
    max_cpu: int = 0
    max_mem: int = 0
    factor_cpu: int = 0
    factor_mem: int = 0
    over_cpu: int = OVERCOMMIT_ONE
    over_mem: int = OVERCOMMIT_ONE
    deadline: int = 0
    """When a tentative hold lapses: Redis' time, ms; 0 for everything else."""
    stamp: int = 0
    """Redis' time (us) of the newest call that changed it."""

    @property
    def amount(self) -> Resources:
        """What it holds."""
        return Resources(self.cpu, self.mem)

    @property
    def charge(self) -> Resources:
        """What its node pays."""
        return Resources(self.charge_cpu, self.charge_mem)

    @property
    def asked(self) -> Resources:
        """What was last asked for."""
        return Resources(self.asked_cpu, self.asked_mem)

    @property
    def overcommit(self) -> Overcommit:
        """By how much its amounts are discounted."""
        return Overcommit(self.over_cpu, self.over_mem)

    @property
    def holds(self) -> bool:
        """It holds room on a node."""
        return self.stage != Stage.PENDING

    @property
    def is_tentative(self) -> bool:
        """Held or binding: it has a deadline."""
        return self.stage in (Stage.HELD, Stage.BINDING)


def said_row(fact: PodFact, *, ignored: bool = False) -> PodRow:
    """What an object says, as a row for a script: no bookkeeping of ours, no stage but the node."""
    vm = fact.vm
    wanted = fact.wanted
    row = PodRow(
        name=fact.full_name,
        node=fact.node or NO_WORD,
        rv=fact.resource_version or NO_WORD,
        vm=int(fact.is_vm),
        broken=int(bool(fact.problem)),
        ignored=int(ignored),
        moving=int(fact.migration_source),
        cpu=wanted.cpu,
        mem=wanted.mem,
    )
    if vm:
        row.vm_rv = (vm.from_vm_object and vm.vm_resource_version) or NO_WORD
        row.scaled = int(vm.autoscaling)
        row.use_cpu, row.use_mem = vm.use.cpu, vm.use.mem
        row.max_cpu, row.max_mem = vm.maximum.cpu, vm.maximum.mem
        row.over_cpu, row.over_mem = vm.overcommit.cpu, vm.overcommit.mem
    return row


def newer(left: str, right: str) -> bool:
    """`left` is a newer resourceVersion than `right`; '-' stands for none, older than any."""
    return (len(left), left) > (len(right), right)
