"""How much a node is liked for one pod, as kube-scheduler wants it: a whole number from 0 to 10.

Pure: no I/O, no clock, and the only randomness is what the caller hands in.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from autoscale_enforcer.config.scheduler_config import ScoreShape
from autoscale_enforcer.model.resources import Resources

MAX_SCORE = 10
"""kube-scheduler's MaxExtenderPriority, the best that it reckons with."""

_NOISE = 1e-9
"""Far below any difference that counts; lifts what should be exactly half but came out below it."""


def score_node(
    *,
    shape: ScoreShape,
    capacity: Resources,
    used_after: Resources,
    largest: Resources,
    fits: bool,
    pick: Callable[[int], int] | None = None,
) -> int:
    """The node's score once the pod is on it: the lower of CPU's and memory's, 10 at best.

    0 says that the pod does not fit, or that the node has no CPU or no memory at all; a node that
    fits gets at least 1. Between, the nearest whole number counts, a half going up. `largest` is
    the largest capacity of any node, CPU and memory each on its own. `pick`, where scores are to
    be randomised, is given the true score n and answers any of 1..n; it is not asked about 0.
    """
    if not fits or min(capacity.cpu, capacity.mem, largest.cpu, largest.mem) <= 0:
        return 0
    lower = min(
        _scaled_worth(shape, capacity.cpu, used_after.cpu, largest.cpu),
        _scaled_worth(shape, capacity.mem, used_after.mem, largest.mem),
    )
    score = min(max(math.floor(lower * MAX_SCORE + 0.5 + _NOISE), 1), MAX_SCORE)
    return pick(score) if pick else score


def worth(shape: ScoreShape, used: float) -> float:
    """The worth, 0 to 1, of a node of which the share `used` is taken (0 to 1)."""
    peak = shape.score_peak
    if used < peak:
        return shape.min_usage_score + (1 - shape.min_usage_score) * (used / peak)
    if used > peak:
        return shape.max_usage_score + (1 - shape.max_usage_score) * ((1 - used) / (1 - peak))
    return 1.0


def _scaled_worth(shape: ScoreShape, capacity: int, used: int, largest: int) -> float:
    """One resource's worth, times the node's size.

    Facts may have brought a node over its capacity, and `largest` may come from a moment before
    this node grew; neither may lead out of 0..1.
    """
    share = min(max(used / capacity, 0.0), 1.0)
    return worth(shape, share) * min(capacity / largest, 1.0)
