"""Nodes as facts: what is allocatable, never the capacity that it is a part of."""

from __future__ import annotations

from collections.abc import Callable

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.facts import NodeFact
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.names import name_problem, uid_problem
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.objects.decode import read_at
from autoscale_enforcer.objects.identity import checked, version_of
from autoscale_enforcer.objects.quantity import NANO, NANO_PER_MILLI, cpu_nano, mem_nano
from autoscale_enforcer.objects.shapes import Metadata, NodeObject, NodeStatus, ResourceList


def read_node(node: NodeObject) -> NodeFact:
    """The node as this version of its object says.

    Allocatable is rounded down, where requests are rounded up: a node must not promise a part of
    a millicore that it does not have. Raises ObjectError where it names neither CPU nor memory, or
    where the ledger's rows could not hold its name, UID or version.
    """
    metadata = node.metadata or Metadata()
    allocatable = (node.status or NodeStatus()).allocatable or ResourceList()
    if allocatable.cpu is None and allocatable.memory is None:
        raise ObjectError("status.allocatable", "names neither cpu nor memory")
    return NodeFact(
        uid=checked("metadata.uid", metadata.uid, uid_problem) if metadata.uid else "",
        name=NodeName(checked("metadata.name", metadata.name, name_problem)),
        resource_version=version_of(metadata),
        allocatable=Resources(
            _whole("cpu", cpu_nano, allocatable.cpu) // NANO_PER_MILLI,
            _whole("memory", mem_nano, allocatable.memory) // NANO,
        ),
        labels=metadata.labels or {},
    )


def _whole(name: str, read: Callable[[object], int], value: object) -> int:
    path = f"status.allocatable.{name}"
    return 0 if value is None else read_at(path, read, value)
