"""The words that scripts answer are those that Python knows, script by script."""

from __future__ import annotations

from enum import StrEnum

import pytest

from autoscale_enforcer.ledger.outcomes import (
    Confirm,
    Fact,
    Keep,
    Lead,
    Order,
    Permit,
    Recount,
    Release,
    Reserve,
)
from autoscale_enforcer.ledger.scripts import load_scripts

ENUMS: dict[type[StrEnum], set[str]] = {
    Reserve: {"reserve_pod"},
    Release: {"unreserve_pod", "abandon_bind", "release_leftover"},
    Confirm: {"confirm_bind"},
    Permit: {"request_permit"},
    Fact: {"put_pod", "put_node", "delete_pod", "delete_node"},
    Recount: {"recount_node"},
    Keep: {"claim_ledger", "put_config", "trim_changes"},
    Lead: {
        *("take_lease", "drop_lease", "lose_books", "begin_build", "load_row", "publish_build"),
        *("settle_ledger", "note_compared", "migrate_ledger"),
    },
    Order: {"freeze_grants", "thaw_grants"},
}

READS = {
    "ask_compare": {"ASKED"},
    "check_ledger": {"SETTLED", "SUSPECT", "UNBUILT", "NEWER", "OLDER"},
    "find_lapsed": {"LAPSED"},
    "load_pods": {"LOADED", "FENCED"},
    "find_unlisted": {"UNLISTED"},
    "note_binding": {"NOTED"},
    "note_loss": {"NOTED"},
    "read_bindings": {"BINDINGS"},
    "read_changes": {"DELTA", "FULL", "UNBUILT"},
    "read_compare": {"COMPARE"},
    "read_rows": {"ROWS"},
    "read_config": {"CONFIG", "NOTHING"},
    "scan_books": {"PORTION"},
    "read_pod": {"POD", "GONE", "UNKNOWN"},
}
"""Scripts whose answer is no outcome of one change."""


def words_of(script: str) -> set[str]:
    """But for EPOCH, which the pipeline answers by deciding the call anew."""
    return set(load_scripts()[script].words) - {"EPOCH"}


@pytest.mark.parametrize("outcome", ENUMS, ids=lambda outcome: outcome.__name__)
def test_outcomes_are_the_words_of_their_scripts(outcome: type[StrEnum]) -> None:
    words = set().union(*(words_of(script) for script in ENUMS[outcome]))

    assert {member.value for member in outcome} == words


@pytest.mark.parametrize("script", READS)
def test_reads_answer_the_words_that_the_ledger_expects(script: str) -> None:
    assert words_of(script) == READS[script]


def test_every_script_has_its_outcomes() -> None:
    assert set().union(*ENUMS.values(), READS) == load_scripts().keys()


@pytest.mark.parametrize("outcome", ENUMS, ids=lambda outcome: outcome.__name__)
def test_every_outcome_says_what_has_become_of_the_books(outcome: type[StrEnum]) -> None:
    assert (outcome.__doc__ or "").startswith("Answers of ")
    assert all(member.name == member.value for member in outcome)
