"""How many requests are worked on at once."""

from __future__ import annotations

import pytest

from autoscale_enforcer.api.door.turns import Turns
from autoscale_enforcer.errors import Overloaded


def test_one_address_gets_half_of_the_turns() -> None:
    turns = Turns(4)
    turns.begin("10.0.0.1")
    turns.begin("10.0.0.1")

    with pytest.raises(Overloaded):
        turns.check("10.0.0.1")
    with pytest.raises(Overloaded):
        turns.begin("10.0.0.1")

    turns.begin("10.0.0.2")
    assert turns.count == 3


def test_all_addresses_together_get_no_more_than_there_are() -> None:
    turns = Turns(4)
    for number in range(4):
        turns.begin(f"10.0.0.{number}")

    with pytest.raises(Overloaded):
        turns.begin("10.0.0.9")

    turns.end("10.0.0.0")
    turns.begin("10.0.0.9")


def test_a_single_turn_may_be_anybodys() -> None:
    turns = Turns(1)

    turns.begin("10.0.0.1")
    turns.end("10.0.0.1")

    assert (turns.count, turns._running) == (0, {})
