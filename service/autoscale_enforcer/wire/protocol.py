"""Versions of the protocol between autoscaler-agents and the scheduler, and what each changed."""

from __future__ import annotations

from enum import IntEnum
from math import gcd

from autoscale_enforcer.errors import WireError
from autoscale_enforcer.model.resources import MAX_CPU_MILLI, MAX_MEM_BYTES, Resources

LARGEST = Resources(MAX_CPU_MILLI, MAX_MEM_BYTES)


class ProtocolVersion(IntEnum):
    """What an agent sends as `protoVersion`."""

    V1_0 = 1
    """autoscaler-agent v0.1.8: whole CPUs, memory slots, metrics in every request."""
    V1_1 = 2
    """v0.1.9 to v0.6.0: metrics may be null."""
    V2_0 = 3
    """v0.7.0 to v0.19.x: fractions of a CPU."""
    V2_1 = 4
    """v0.20.0 to v0.21.0: sends `lastPermit`."""
    V3_0 = 5
    """v0.22.0: no `resourceUnit` in the answer any more."""
    V4_0 = 6
    """v0.23.0 to v0.27.0: memory in bytes, sends `computeUnit`."""
    V5_0 = 7
    """v0.28.0 and later: fewer metrics."""

    @property
    def label(self) -> str:
        """As people name it: `v2.1`."""
        return self.name.lower().replace("_", ".")

    @property
    def allows_null_metrics(self) -> bool:
        """From v1.1: `metrics` may be null or absent."""
        return self >= ProtocolVersion.V1_1

    @property
    def has_fractional_cpu(self) -> bool:
        """From v2.0; before, CPUs are whole in the request, the factor and the answer."""
        return self >= ProtocolVersion.V2_0

    @property
    def has_last_permit(self) -> bool:
        """From v2.1: the request may tell the last permit; before, that is an unknown field."""
        return self >= ProtocolVersion.V2_1

    @property
    def answers_resource_unit(self) -> bool:
        """Up to v2.1: the answer tells the compute unit, as `resourceUnit`."""
        return self <= ProtocolVersion.V2_1

    @property
    def sends_compute_unit(self) -> bool:
        """From v4.0: the request tells the compute unit; before, that is an unknown field."""
        return self >= ProtocolVersion.V4_0

    @property
    def mem_in_bytes(self) -> bool:
        """From v4.0: memory is a quantity of bytes; before, a number of the VM's slots."""
        return self >= ProtocolVersion.V4_0


SPOKEN = (
    f"we speak {min(ProtocolVersion).label} to {max(ProtocolVersion).label}, "
    f"which is {min(ProtocolVersion):d} to {max(ProtocolVersion):d}"
)


def effective_factor(
    version: ProtocolVersion, *, requested: Resources | None, configured: Resources | None
) -> Resources:
    """The step in which increases are granted: the request's own unit, or the configured one.

    An agent that knows whole CPUs only gets the smallest multiple of the unit whose CPU is whole.
    Raises WireError where an agent sends no unit and none is configured.
    """
    if requested is not None:
        return requested
    if configured is None:
        reason = f"protocol {version.label} sends none and none is configured: set --compute-unit"
        raise WireError("computeUnit", reason)
    if version.has_fractional_cpu:
        return configured
    times = 1000 // gcd(configured.cpu, 1000)
    return Resources(configured.cpu * times, configured.mem * times).at_most(LARGEST)
