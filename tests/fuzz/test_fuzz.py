"""A short campaign, from a seed of each run's own; `make fuzz` is the long one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.fuzz.__main__ import MORE_MEMORY, lines
from tests.fuzz.campaign import campaign
from tests.fuzz.config import read_nonsense
from tests.fuzz.requests import Requests

REQUESTS = 10_000


def test_the_same_seed_gives_the_same_requests() -> None:
    one, other = Requests(7), Requests(7)

    assert [one.one() for _ in range(500)] == [other.one() for _ in range(500)]


def test_the_config_reader_takes_or_refuses_whatever_it_is_given() -> None:
    refused, taken = read_nonsense(3000, seed=random.randrange(1 << 32))

    assert min(refused, taken) > 300


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_replica_takes_or_refuses_whatever_it_is_sent(
    record_property: Callable[[str, object], None],
) -> None:
    seed = random.randrange(1 << 32)

    outcome = await campaign(REQUESTS, seed, on_part=lambda _: None)

    told = "\n".join([f"seed {seed}", *lines(outcome)])
    record_property("printed", told)
    assert outcome.found.wrong == [], told
    assert outcome.breaches == []
    assert outcome.grown < MORE_MEMORY
    statuses = outcome.found.statuses
    for door in ("extender", "agent", "admin"):
        assert min(statuses[door, "200"], statuses[door, "400"]) > 0, told
