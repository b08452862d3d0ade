"""Whether a node is worth clearing."""

from __future__ import annotations

import pytest

from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NodeRow, PodRow
from autoscale_enforcer.policy.preempt import fits_without

NODE = NodeRow(
    cap_cpu=8000, cap_mem=800, reserved_cpu=7000, reserved_mem=500, ignored_cpu=1000, ignored_mem=0
)


def holding(cpu: int, mem: int = 0) -> PodRow:
    """A pod whose charge is half of its amount."""
    return PodRow(name="x/y", cpu=2 * cpu, mem=2 * mem, charge_cpu=cpu, charge_mem=mem)


@pytest.mark.parametrize(
    ("leaving", "charge", "fits"),
    [
        ([], (0, 300), True),
        ([], (1, 0), False),
        ([holding(4000)], (4000, 300), True),
        ([holding(4000)], (4001, 0), False),
        ([holding(4000, 100)], (0, 400), True),
        ([holding(4000, 100)], (0, 401), False),
        ([holding(3000), holding(4000)], (7000, 0), True),
    ],
)
def test_fits_without_counts_what_victims_are_charged(
    leaving: list[PodRow], charge: tuple[int, int], fits: bool
) -> None:
    """Ignored pods are no victims unless offered: they count like all others."""
    assert fits_without(NODE, leaving, charge=Resources(*charge)) is fits


def test_fits_without_leaves_the_pods_own_hold_out() -> None:
    own = Resources(2000, 0)

    assert fits_without(NODE, [], charge=own, own=own)
    assert not fits_without(NODE, [], charge=own, own=NOTHING)
    assert not fits_without(NODE, [], charge=Resources(2001, 0), own=own)
    assert fits_without(NODE, [holding(1)], charge=Resources(2001, 0), own=own)
