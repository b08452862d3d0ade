"""One request of an autoscaler-agent, whatever version it came in."""

from __future__ import annotations

from dataclasses import dataclass

from autoscale_enforcer.errors import WireError
from autoscale_enforcer.model.ids import PodName, pod_name
from autoscale_enforcer.model.resources import MAX_MEM_BYTES, Resources
from autoscale_enforcer.wire.protocol import ProtocolVersion


@dataclass(frozen=True, slots=True)
class AgentAmount:
    """CPU in millicores and memory as an agent counts it: in slots of its VM, or in bytes."""

    cpu: int
    mem: int
    mem_in_bytes: bool

    def resources(self, slot_bytes: int) -> Resources:
        """The same in bytes, for a VM with slots of that size."""
        return Resources(self.cpu, self.mem if self.mem_in_bytes else self.mem * slot_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRequest:
    """One request of an autoscaler-agent for its VM."""

    version: ProtocolVersion
    namespace: str
    name: str
    asked: AgentAmount
    """The whole amount wanted, never zero."""
    told: AgentAmount | None
    """`lastPermit`; None before v2.1 and after an agent's start."""
    compute_unit: Resources | None
    """From v4.0 on, never zero; None before."""

    @property
    def full_name(self) -> PodName:
        """`namespace/name` of the VM's pod; agents know no UID."""
        return pod_name(self.namespace, self.name)

    def wanted(self, slot_bytes: int) -> Resources:
        """What is asked, for a VM with slots of that size; raises WireError when absurd."""
        amount = self.asked.resources(slot_bytes)
        if amount.mem > MAX_MEM_BYTES:
            raise WireError("resources.mem", "is more than 64Ti")
        return amount

    def last_permit(self, slot_bytes: int) -> Resources | None:
        """What the agent was last told, at most what it asks now; None where it does not say."""
        if self.told is None:
            return None
        return self.told.resources(slot_bytes).at_most(self.wanted(slot_bytes))
