"""Pods as facts."""

from __future__ import annotations

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.facts import PodFact, VmFact
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.names import name_problem, uid_problem
from autoscale_enforcer.model.resources import NOTHING
from autoscale_enforcer.objects.identity import checked, version_of
from autoscale_enforcer.objects.pod_cost import pod_requests
from autoscale_enforcer.objects.shapes import Metadata, PodObject, PodSpec, PodStatus, VmObject
from autoscale_enforcer.objects.vms import read_vm, vm_owner

DEFAULT_NAMESPACE = "default"


def read_pod(
    pod: PodObject, vm: VmObject | None = None, *, labels: dict[str, str] | None = None
) -> PodFact:
    """The pod as this version of its object says; `vm` is the VirtualMachine it runs, if known.

    `labels` are kept in the place of its own, where they are given.
    A VM whose own data cannot be read gives a fact with a `problem`. Requests that cannot be read
    raise ObjectError with their path, save for a finished pod: that one holds nothing anyway. So
    do names, a UID or a version that the ledger's rows cannot hold.
    """
    metadata = pod.metadata or Metadata()
    namespace = metadata.namespace or DEFAULT_NAMESPACE
    spec, status = pod.spec or PodSpec(), pod.status or PodStatus()
    finished = status.phase in {"Succeeded", "Failed"}
    vm_fact, problem = _vm_or_problem(pod, vm)
    return PodFact(
        uid=PodUid(checked("metadata.uid", metadata.uid, uid_problem)),
        namespace=checked("metadata.namespace", namespace, name_problem),
        name=checked("metadata.name", metadata.name, name_problem),
        resource_version=version_of(metadata),
        node=_node_of(spec),
        finished=finished,
        deleting=metadata.deletion_timestamp is not None,
        requests=NOTHING if finished else pod_requests(pod),
        vm=vm_fact,
        problem=problem,
        labels=(metadata.labels or {}) if labels is None else labels,
    )


def _node_of(spec: PodSpec) -> NodeName | None:
    name = spec.node_name
    return NodeName(checked("spec.nodeName", name, name_problem)) if name else None


def _vm_or_problem(pod: PodObject, vm: VmObject | None) -> tuple[VmFact | None, str]:
    name = vm_owner(pod)
    if name is None:
        return None, ""
    try:
        return read_vm(pod, name, vm), ""
    except ObjectError as error:
        return None, str(error)
