"""How much a run measures: all of it, or just enough to see that it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.cluster import Size

Say = Callable[[str], None]
"""Told what is going on, for whoever waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """One kind of run."""

    rounds: int
    seconds: float
    """That one measure of a rate takes."""
    agents: Size
    """Every VM in it is asked for."""
    filters: Size
    names: tuple[int, ...]
    whole_nodes: int
    calls: int
    """Filters in one measure of the largest kind; small ones get more."""
    small: Size
    large: Size
    batches: int
    """Of each call, where Redis' own time is measured."""
    cold: Size
    cold_starts: int
    scheduled: tuple[tuple[int, int], ...]
    """Nodes and pods of each cluster that a kube-scheduler works in."""
    scheduler_rounds: int
    soak: Size
    soak_seconds: float
    soak_agents: int
    """Requests a second."""
    soak_binds: int
    """Pods a second."""


FULL = Scale(
    rounds=7,
    seconds=3,
    agents=Size(nodes=200, pods=1000, vms=640),
    filters=Size(nodes=5000, pods=15_000, vms=3000),
    names=(5000, 1000, 100),
    whole_nodes=500,
    calls=42,
    small=Size(nodes=10, pods=100, vms=50),
    large=Size(nodes=5000, pods=150_000, vms=10_000),
    batches=200,
    cold=Size(nodes=5000, pods=150_000, vms=10_000),
    cold_starts=3,
    scheduled=((500, 1500), (5000, 1000)),
    scheduler_rounds=5,
    soak=Size(nodes=2000, pods=20_000, vms=10_000),
    soak_seconds=600,
    soak_agents=2000,
    soak_binds=100,
)

SHORT = Scale(
    rounds=1,
    seconds=0.5,
    agents=Size(nodes=20, pods=64, vms=64),
    filters=Size(nodes=50, pods=100, vms=20),
    names=(50,),
    whole_nodes=10,
    calls=7,
    small=Size(nodes=10, pods=100, vms=50),
    large=Size(nodes=20, pods=500, vms=50),
    batches=3,
    cold=Size(nodes=20, pods=1000, vms=100),
    cold_starts=1,
    scheduled=((5, 20),),
    scheduler_rounds=1,
    soak=Size(nodes=50, pods=200, vms=100),
    soak_seconds=4,
    soak_agents=200,
    soak_binds=10,
)
"""Its figures mean nothing: it shows that each bench runs and that the answers are right."""
