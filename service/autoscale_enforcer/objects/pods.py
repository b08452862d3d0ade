"""Pods as facts."""

from __future__ import annotations

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.facts import PodFact, VmFact
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.resources import NOTHING
from autoscale_enforcer.objects.pod_cost import pod_requests
from autoscale_enforcer.objects.shapes import Metadata, PodObject, PodSpec, PodStatus, VmObject
from autoscale_enforcer.objects.vms import read_vm, vm_owner

DEFAULT_NAMESPACE = "default"


def read_pod(pod: PodObject, vm: VmObject | None = None) -> PodFact:
    """The pod as this version of its object says; `vm` is the VirtualMachine it runs, if known.

    A VM whose own data cannot be read gives a fact with a `problem`. Requests that cannot be read
    raise ObjectError with their path, save for a finished pod: that one holds nothing anyway.
    """
    metadata = pod.metadata or Metadata()
    spec, status = pod.spec or PodSpec(), pod.status or PodStatus()
    finished = status.phase in {"Succeeded", "Failed"}
    vm_fact, problem = _vm_or_problem(pod, vm)
    return PodFact(
        uid=PodUid(required("metadata.uid", metadata.uid)),
        namespace=metadata.namespace or DEFAULT_NAMESPACE,
        name=required("metadata.name", metadata.name),
        resource_version=metadata.resource_version or "",
        node=NodeName(spec.node_name) if spec.node_name else None,
        finished=finished,
        deleting=metadata.deletion_timestamp is not None,
        requests=NOTHING if finished else pod_requests(pod),
        vm=vm_fact,
        problem=problem,
        labels=metadata.labels or {},
    )


def required(path: str, value: str | None) -> str:
    """The value; raises ObjectError where it is absent or empty."""
    if not value:
        raise ObjectError(path, "missing")
    return value


def _vm_or_problem(pod: PodObject, vm: VmObject | None) -> tuple[VmFact | None, str]:
    name = vm_owner(pod)
    if name is None:
        return None, ""
    try:
        return read_vm(pod, name, vm), ""
    except ObjectError as error:
        return None, str(error)
