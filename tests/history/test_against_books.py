"""What the model itself has answered is accepted, in whatever way calls overlap; what it could
not have answered is not.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.history.check import check
from tests.history.record import NodeSeen, Op, Operation, Outcome
from tests.history.told_by_books import CAPACITY, told_by_books

SEEDS = st.integers(0, 1 << 32)
FEW = settings(max_examples=60)


@FEW
@given(SEEDS, st.integers(0, 4))
def test_what_the_model_answered_is_accepted(seed: int, overlap: int) -> None:
    report = check(told_by_books(seed, steps=80, overlap=overlap))

    assert report.is_linearizable, report.text


@pytest.mark.long
@pytest.mark.timeout(300)
@settings(max_examples=250)
@given(SEEDS, st.integers(0, 6))
def test_what_the_model_answered_is_never_proven_wrong(seed: int, overlap: int) -> None:
    """Of so many calls a tenth of which is never answered, a search may be too much."""
    report = check(told_by_books(seed, steps=150, overlap=overlap))

    assert not any(each.is_proven for each in report.counterexamples), report.text


def one_more_shown(one: Operation) -> None:
    """Sums are in whole 125m, whatever the order."""
    assert one.seen
    node, shown = next(iter(one.seen.items()))
    assert isinstance(shown, NodeSeen)
    cpu, mem = shown.reserved
    one.seen[node] = NodeSeen(shown.capacity, (cpu + 1, mem), shown.pods)


def one_more_permitted(one: Operation) -> None:
    """A permit grows in whole units."""
    one.told = (one.told[0] + 1, one.told[1])


def too_much_granted(one: Operation) -> None:
    """It would not fit on the empty node."""
    one.asked = (CAPACITY.cpu + 1, CAPACITY.mem)


ALTERED: dict[Op, Callable[[Operation], None]] = {
    Op.READ: one_more_shown,
    Op.REQUEST: one_more_permitted,
    Op.RESERVE: too_much_granted,
}


@pytest.mark.parametrize("op", ALTERED)
@settings(max_examples=20)
@given(SEEDS, st.integers(0, 3))
def test_one_answer_that_the_model_never_gives_is_found(op: Op, seed: int, overlap: int) -> None:
    history = told_by_books(seed, steps=60, overlap=overlap)
    # A pod that is bound is granted whatever it asks for.
    fixed = {one.pod for one in history if one.op is Op.BIND}
    answered = [
        one
        for one in history
        if one.op is op and one.outcome is Outcome.DONE and one.pod not in fixed
    ]
    if not answered:
        return

    one = random.Random(seed).choice(answered)
    ALTERED[op](one)

    assert not check(history).is_linearizable
