"""What the Kubernetes API says of an object, reduced to what the ledger needs.

A fact never carries what we decided: the amount of an autoscaled VM is worked out by the script
that finds its row, so that a grant made meanwhile stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autoscale_enforcer.model.ids import NodeName, PodName, PodUid, pod_name
from autoscale_enforcer.model.resources import NO_OVERCOMMIT, NOTHING, Overcommit, Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class VmFact:
    """The VirtualMachine that a pod runs, from the pod's annotations or the VM object."""

    name: str
    autoscaling: bool
    """`autoscaling.neon.tech/enabled: "true"`: the amount is a permit, raised on request only."""
    use: Resources
    """What the guest is plugged with, as the object says; it trails the agent."""
    minimum: Resources
    maximum: Resources
    slot_bytes: int
    """Size of a memory slot, bytes."""
    approved: Resources = NOTHING
    """`internal.autoscaling.neon.tech/resources-approved`; counts at a build of the ledger only."""
    overcommit: Overcommit = NO_OVERCOMMIT
    from_vm_object: bool = False
    """True where the pod has no annotation (NeonVM before v0.27) and the VM object was read."""
    vm_resource_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFact:
    """A pod as one version of its object says."""

    uid: PodUid
    namespace: str
    name: str
    resource_version: str
    node: NodeName | None
    """`spec.nodeName`; None while unbound."""
    finished: bool = False
    """Phase Succeeded or Failed: holds nothing, whatever else is said."""
    deleting: bool = False
    """Has a deletionTimestamp."""
    requests: Resources = NOTHING
    """What the scheduler's own rule says it needs, overhead and in-place resize included."""
    vm: VmFact | None = None
    problem: str = ""
    """Set where the pod is a VM whose own data cannot be read (yet): path and reason, for people.
    Such a pod is not placed and gets no permit; once bound it counts with its requests, or goes on
    counting as it did where the VM could be read before."""
    migration_source: bool = False
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> PodName:
        """`namespace/name`."""
        return pod_name(self.namespace, self.name)

    @property
    def is_vm(self) -> bool:
        """A VirtualMachine owns it, whether or not its data could be read."""
        return self.vm is not None or bool(self.problem)

    @property
    def wanted(self) -> Resources:
        """What it asks for when it is placed: a VM's use, else its requests."""
        return self.vm.use if self.vm else self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFact:
    """A node as one version of its object says."""

    uid: str
    name: NodeName
    resource_version: str
    allocatable: Resources
    labels: dict[str, str] = field(default_factory=dict)
