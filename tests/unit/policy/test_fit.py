"""Whether a pod fits: the twin of `lua/lib/short_of.lua`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NodeRow
from autoscale_enforcer.policy.fit import SHORT_OF, Reason, could_ever_fit, short_of

AMOUNTS = st.builds(Resources, st.integers(0, 30), st.integers(0, 30))


@pytest.mark.parametrize(
    ("taken", "charge", "had", "reason"),
    [
        ((6, 6), (4, 4), (0, 0), None),
        ((6, 6), (5, 4), (0, 0), Reason.CPU),
        ((6, 6), (4, 5), (0, 0), Reason.MEMORY),
        ((6, 6), (5, 5), (0, 0), Reason.BOTH),
        ((12, 0), (0, 4), (0, 0), None),
        ((12, 0), (1, 4), (0, 0), Reason.CPU),
        ((9, 0), (4, 4), (4, 0), None),
        ((9, 0), (5, 4), (4, 0), Reason.CPU),
        ((9, 9), (3, 3), (4, 4), None),
    ],
    ids=[
        "exactly-full",
        "cpu",
        "memory",
        "both",
        "asks-nothing-of-what-is-over",
        "asks-of-what-is-over",
        "keeps-what-it-has",
        "more-than-it-has",
        "less-than-it-has",
    ],
)
def test_short_of_judges_what_is_asked_anew(
    taken: tuple[int, int], charge: tuple[int, int], had: tuple[int, int], reason: Reason | None
) -> None:
    found = short_of(
        capacity=Resources(10, 10),
        taken=Resources(*taken),
        charge=Resources(*charge),
        had=Resources(*had),
    )

    assert found is reason


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_what_fits_takes_no_node_over_capacity(
    capacity: Resources, taken: Resources, charge: Resources
) -> None:
    if short_of(capacity=capacity, taken=taken, charge=charge) is None:
        after = taken + charge
        assert charge.cpu == 0 or after.cpu <= capacity.cpu
        assert charge.mem == 0 or after.mem <= capacity.mem


@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_what_fits_still_fits_when_others_have_left(
    capacity: Resources, taken: Resources, left: Resources, charge: Resources
) -> None:
    if short_of(capacity=capacity, taken=taken, charge=charge) is None:
        fewer = taken.at_most(left)
        assert short_of(capacity=capacity, taken=fewer, charge=charge) is None


def test_could_ever_fit_looks_at_the_empty_node() -> None:
    node = NodeRow(cap_cpu=10, cap_mem=10, reserved_cpu=10, reserved_mem=10)

    assert could_ever_fit(node, Resources(10, 10))
    assert could_ever_fit(node, NOTHING)
    assert not could_ever_fit(node, Resources(11, 1))
    assert not could_ever_fit(node, Resources(1, 11))


def test_reasons_have_no_numbers_or_names() -> None:
    """kube-scheduler groups nodes by the literal text."""
    texts = [str(reason) for reason in Reason]

    assert len(set(texts)) == len(texts)
    assert all(text.replace(" ", "").isalpha() for text in texts)


def test_the_scripts_words_have_their_reasons() -> None:
    assert SHORT_OF == {"cpu": Reason.CPU, "mem": Reason.MEMORY, "cpu_mem": Reason.BOTH}
