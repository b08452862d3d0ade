"""Scores: the shape, the size, the bounds, and the randomisation (FIELD-REPORTS row 4)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscale_enforcer.config.scheduler_config import ScoreShape
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.policy.score import MAX_SCORE, drawn, scorer, worth_by

GIB = 1 << 30
SHAPE = ScoreShape()
BIG = Resources(64_000, 256 * GIB)


def score_node(
    *,
    shape: ScoreShape = SHAPE,
    capacity: Resources,
    used_after: Resources,
    largest: Resources,
) -> int:
    score = scorer(shape, largest)
    return score(capacity.cpu, capacity.mem, used_after.cpu, used_after.mem)


def half(amount: Resources) -> Resources:
    return Resources(amount.cpu // 2, amount.mem // 2)


@pytest.mark.parametrize(
    ("used", "expected"),
    [(0.0, 0.5), (0.4, 0.75), (0.8, 1.0), (0.9, 0.5), (1.0, 0.0), (-0.1, 0.5), (1.1, 0.0)],
    ids=["empty", "halfway up", "peak", "halfway down", "full", "less than empty", "over"],
)
def test_worth_follows_both_lines(used: float, expected: float) -> None:
    assert worth_by(SHAPE)(used) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("peak", "used", "expected"),
    [
        *((0.0, -0.1, 1.0), (0.0, 0.0, 1.0), (0.0, 0.5, 0.6)),
        *((1.0, 0.5, 0.65), (1.0, 1.0, 1.0), (1.0, 1.1, 1.0)),
    ],
)
def test_worth_with_the_peak_at_an_end_is_one_line(
    peak: float, used: float, expected: float
) -> None:
    shape = ScoreShape(min_usage_score=0.3, max_usage_score=0.2, score_peak=peak)

    assert worth_by(shape)(used) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("capacity", "used", "expected"),
    [
        (BIG, half(BIG), 8),
        (Resources(16_000, 64 * GIB), Resources(8_000, 32 * GIB), 2),
        (Resources(0, 0), Resources(0, 0), 0),
    ],
    ids=["n-big", "n-small", "n-zero"],
)
def test_score_follows_use_and_size(capacity: Resources, used: Resources, expected: int) -> None:
    """Scores once followed the size alone, or left the range (row 4): a node a quarter the size
    and as full scores a quarter."""
    scores = {score_node(capacity=capacity, used_after=used, largest=BIG) for _ in range(200)}

    assert scores == {expected}


def test_scores_vary_within_one_and_the_true_score_when_drawn_at_random() -> None:
    """The random spread was once worked out and thrown away (row 4)."""
    dice = random.Random(4)

    scores = drawn([8] * 200, lambda best: dice.randint(1, best))

    assert set(scores) == set(range(1, 9))


def test_a_score_of_zero_is_never_drawn_at_random() -> None:
    def refuse(best: int) -> int:
        raise AssertionError(f"asked about {best}")

    assert drawn([0], refuse) == [0]


@pytest.mark.parametrize(
    "capacity", [Resources(0, GIB), Resources(1000, 0)], ids=["no cpu", "no memory"]
)
def test_score_is_zero_where_one_of_the_two_is_missing(capacity: Resources) -> None:
    assert score_node(capacity=capacity, used_after=Resources(), largest=BIG) == 0


def test_score_takes_the_lower_of_cpu_and_memory() -> None:
    score = score_node(
        capacity=Resources(1000, 1000),
        used_after=Resources(800, 900),
        largest=Resources(1000, 1000),
    )

    assert score == 5


def test_score_scales_cpu_and_memory_each_by_its_own_largest() -> None:
    score = score_node(
        capacity=Resources(1000, 1000),
        used_after=Resources(800, 800),
        largest=Resources(1000, 2000),
    )

    assert score == 5


@pytest.mark.parametrize(
    ("used", "expected"),
    [(1000, 1), (1500, 1), (-500, 5), (990, 1), (975, 1), (970, 2), (969, 2)],
    ids=["full", "over", "below none", "half of one", "1.25", "a half goes up", "above it"],
)
def test_score_of_a_node_that_fits_is_at_least_one(used: int, expected: int) -> None:
    score = score_node(
        capacity=Resources(1000, 1000),
        used_after=Resources(used, 0),
        largest=Resources(1000, 1000),
    )

    assert score == expected


def test_score_does_not_leave_the_range_when_the_largest_is_out_of_date() -> None:
    score = score_node(
        capacity=Resources(1000, 1000),
        used_after=Resources(800, 800),
        largest=Resources(500, 500),
    )

    assert score == MAX_SCORE


FRACTIONS = st.floats(0, 1)
AMOUNTS = st.builds(Resources, st.integers(-1, 1 << 30), st.integers(-1, 1 << 46))


@given(
    shape=st.builds(
        ScoreShape, min_usage_score=FRACTIONS, max_usage_score=FRACTIONS, score_peak=FRACTIONS
    ),
    capacity=AMOUNTS,
    used=AMOUNTS,
    largest=AMOUNTS,
)
def test_score_is_always_a_whole_number_in_range(
    shape: ScoreShape, capacity: Resources, used: Resources, largest: Resources
) -> None:
    score = score_node(shape=shape, capacity=capacity, used_after=used, largest=largest)

    assert type(score) is int
    usable = min(capacity.cpu, capacity.mem, largest.cpu, largest.mem) > 0
    assert (1 <= score <= MAX_SCORE) if usable else score == 0
