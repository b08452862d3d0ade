"""CPU in whole millicores and memory in whole bytes, and the arithmetic of charges."""

from __future__ import annotations

from dataclasses import dataclass

OVERCOMMIT_ONE = 1000
"""Overcommit factors are kept in thousandths: 1500 means that 1.5 CPU cost the node 1."""

MAX_CPU_MILLI = 1 << 30
"""Largest CPU amount taken for real (about a million cores)."""

MAX_MEM_BYTES = 1 << 46
"""Largest memory amount taken for real (64 TiB): 110 such pods on a node, the kubelet's default
limit, still add up exactly in the doubles that Lua counts with (2^53)."""


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of CPU (whole millicores) and of memory (whole bytes)."""

    cpu: int = 0
    mem: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(self.cpu + other.cpu, self.mem + other.mem)

    def __sub__(self, other: Resources) -> Resources:
        return Resources(self.cpu - other.cpu, self.mem - other.mem)

    def at_least(self, other: Resources) -> Resources:
        """The larger of the two, CPU and memory each on its own."""
        return Resources(max(self.cpu, other.cpu), max(self.mem, other.mem))

    def at_most(self, other: Resources) -> Resources:
        """The smaller of the two, CPU and memory each on its own."""
        return Resources(min(self.cpu, other.cpu), min(self.mem, other.mem))


NOTHING = Resources()


@dataclass(frozen=True, slots=True)
class Overcommit:
    """By how much a VM's amounts are discounted, in thousandths; at least 100, at most 100,000."""

    cpu: int = OVERCOMMIT_ONE
    mem: int = OVERCOMMIT_ONE

    def charge(self, amount: Resources) -> Resources:
        """What a node pays for `amount`: divided by the factor, rounded down."""
        return Resources(
            amount.cpu * OVERCOMMIT_ONE // self.cpu, amount.mem * OVERCOMMIT_ONE // self.mem
        )


NO_OVERCOMMIT = Overcommit()
