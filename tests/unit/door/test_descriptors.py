"""A process allows itself the open files that its connections need."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from autoscale_enforcer.api.door.descriptors import BESIDES, allow_descriptors


@pytest.fixture(autouse=True)
def limits() -> Iterator[tuple[int, int]]:
    """The limits of this process as they were, afterwards too; the soft one is low meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (900, before[1]))
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def soft() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_the_limit_is_raised_as_far_as_is_needed(caplog: pytest.LogCaptureFixture) -> None:
    allow_descriptors(1000)

    assert (soft(), caplog.messages) == (1000 + BESIDES, [])


def test_a_limit_that_is_high_enough_stays() -> None:
    allow_descriptors(100)

    assert soft() == 900


def test_what_may_not_be_raised_so_far_is_said(
    caplog: pytest.LogCaptureFixture, limits: tuple[int, int]
) -> None:
    hard = limits[1]
    if hard == resource.RLIM_INFINITY:
        hard = 1 << 20
        resource.setrlimit(resource.RLIMIT_NOFILE, (900, hard))

    allow_descriptors(hard)

    assert soft() == hard
    assert f"only {hard} are allowed" in caplog.text
