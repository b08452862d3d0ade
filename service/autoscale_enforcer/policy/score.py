"""How much a node is liked for one pod, as kube-scheduler wants it: a whole number from 0 to 10.

Pure: no I/O, no clock, and the only randomness is what the caller hands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from autoscale_enforcer.config.scheduler_config import SchedulerConfig, ScoreShape
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import NodeRow

MAX_SCORE = 10
"""kube-scheduler's MaxExtenderPriority, the best that it reckons with."""

_NOISE = 1e-9
"""Far below any difference that counts; lifts what should be exactly half but came out below it."""


Score = Callable[[int, int, int, int], int]
"""Capacity in CPU and memory, and what of it will be used: the node's score."""


def true_scores(
    rows: Mapping[NodeName, NodeRow], charge: Resources, config: SchedulerConfig, largest: Resources
) -> dict[NodeName, int]:
    """How much each of these nodes is liked for a pod of this charge that it does not hold yet.

    Whether the pod fits is not looked at. Ignored namespaces are no use of a node: their pods give
    way.
    """
    found: dict[NodeName, int] = {}
    shape, score = config.nodes.scoring, scorer(config.nodes.scoring, largest)
    for name, node in rows.items():
        own_shape = config.node_config(name).scoring
        if own_shape is not shape:  # seldom, and to hash a shape for each node would take longer
            shape, score = own_shape, scorer(own_shape, largest)
        found[name] = score(
            node.cap_cpu,
            node.cap_mem,
            node.reserved_cpu + charge.cpu,
            node.reserved_mem + charge.mem,
        )
    return found


def drawn(scores: Iterable[int], pick: Callable[[int], int]) -> list[int]:
    """Scores that are randomised: `pick` is given each true score n and answers any of 1..n; it is
    not asked about 0.
    """
    return [pick(score) if score else 0 for score in scores]


def scorer(shape: ScoreShape, largest: Resources) -> Score:
    """Scores nodes for one pod: thousands in one call, so what they share is worked out here, once.

    A node's score is the lower of CPU's and memory's, from 1 to 10, and 0 where it has no CPU or no
    memory at all. Between, the nearest whole number counts, a half going up. `largest` is the
    largest capacity of any node, CPU and memory each on its own.
    """
    worth = worth_by(shape)
    most_cpu, most_mem = largest.cpu, largest.mem

    def score(cap_cpu: int, cap_mem: int, used_cpu: int, used_mem: int) -> int:
        if cap_cpu <= 0 or cap_mem <= 0 or most_cpu <= 0 or most_mem <= 0:
            return 0
        cpu, mem = worth(used_cpu / cap_cpu), worth(used_mem / cap_mem)
        # `largest` may come from a moment before this node grew.
        if cap_cpu < most_cpu:
            cpu *= cap_cpu / most_cpu
        if cap_mem < most_mem:
            mem *= cap_mem / most_mem
        rounded = int((min(mem, cpu)) * MAX_SCORE + 0.5 + _NOISE)
        return max(rounded, 1)

    return score


def worth_by(shape: ScoreShape) -> Callable[[float], float]:
    """The worth, 0 to 1, of a node by the share of it that is taken.

    Facts may have brought a node over its capacity: a share beyond 0..1 is worth what its end is.
    """
    peak, low, high = shape.score_peak, shape.min_usage_score, shape.max_usage_score
    up = (1 - low) / peak if peak > 0 else 0.0
    down = (1 - high) / (1 - peak) if peak < 1 else 0.0

    def worth(used: float) -> float:
        share = 0.0 if used < 0 else min(used, 1.0)
        if share < peak:
            return low + up * share
        return high + down * (1 - share) if peak < 1 else 1.0

    return worth
