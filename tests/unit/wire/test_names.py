from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscale_enforcer.model.names import (
    first_bad_name,
    name_problem,
    uid_problem,
    version_problem,
)

GOOD = ["n1", "ip-10-0-0-4.eu-central-1.compute.internal", "x" * 253, "nœud"]
BAD = [
    "",
    "-",
    " ",
    "a b",
    "a\tb",
    "a\nb",
    "a\0b",
    "a\u00a0b",
    "a\u200bb",
    "\ud800",
    "a/b",
    "x" * 254,
]


@pytest.mark.parametrize("name", GOOD)
def test_name_problem_is_empty_for_names(name: str) -> None:
    assert name_problem(name) == ""


@pytest.mark.parametrize("name", BAD)
def test_name_problem_says_why_without_repeating_the_name(name: str) -> None:
    assert name_problem(name).startswith("must ")


@pytest.mark.parametrize(
    ("uid", "is_good"), [("x" * 128, True), ("a/b", True), ("x" * 129, False), ("a b", False)]
)
def test_uid_problem_has_its_own_limit(uid: str, is_good: bool) -> None:
    assert (uid_problem(uid) == "") is is_good


@pytest.mark.parametrize("version", ["0", "7", "10", "9" * 20])
def test_version_problem_is_empty_for_decimal_numbers(version: str) -> None:
    assert version_problem(version) == ""


@pytest.mark.parametrize("version", ["", "-", "-1", "1.0", "07", "1 2", "0x1", "\u0661", "9" * 21])
def test_version_problem_refuses_what_could_not_be_compared(version: str) -> None:
    assert version_problem(version) == "must be a whole number of at most 20 digits"


@given(st.lists(st.one_of(st.text(max_size=4), st.sampled_from(GOOD + BAD)), max_size=8))
def test_first_bad_name_agrees_with_name_problem(names: list[str]) -> None:
    bad = [(index, name_problem(name)) for index, name in enumerate(names) if name_problem(name)]

    assert first_bad_name(names) == (bad[0] if bad else None)
