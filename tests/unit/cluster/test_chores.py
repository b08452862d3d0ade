"""A leader's chores run while this replica leads, and through trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from autoscale_enforcer.background import Background
from autoscale_enforcer.cluster import chores
from autoscale_enforcer.cluster.chores import while_leading
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable


class Leads:
    """Whether this replica leads, and what was done meanwhile."""

    def __init__(self) -> None:
        self.leads = True
        self.looked = self.done = 0
        self.troubles: list[Exception] = []

    def is_leading(self) -> bool:
        self.looked += 1
        return self.leads

    async def chore(self) -> None:
        self.done += 1
        if self.troubles:
            raise self.troubles.pop()

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():  # noqa: ASYNC110 - the work under test gives no sign
            await asyncio.sleep(0)


@pytest.fixture
def leads() -> Leads:
    return Leads()


@pytest.fixture
async def background() -> AsyncIterator[Background]:
    async with Background() as background:
        yield background


def work(leads: Leads, every: float = 0.0) -> Callable[[], Awaitable[None]]:
    return while_leading(leads.is_leading, leads.chore, every=every)


async def test_a_chore_is_done_again_and_again(leads: Leads, background: Background) -> None:
    background.start("chore", work(leads))

    await leads.until(lambda: leads.done >= 3)


async def test_a_chore_is_left_to_the_leader(leads: Leads, background: Background) -> None:
    leads.leads = False
    background.start("chore", work(leads))
    await leads.until(lambda: leads.looked >= 3)
    assert leads.done == 0

    leads.leads = True

    await leads.until(lambda: leads.done >= 1)


async def test_a_chore_goes_on_after_trouble(
    leads: Leads,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(chores, "FAILED_PAUSE", 0.0)
    leads.troubles = [ClusterUnavailable("no API"), LedgerUnavailable("no Redis")]
    background.start("chore", work(leads))

    await leads.until(lambda: leads.done >= 3)

    assert background.failures == {}
    assert "no API" in caplog.text
    assert "no Redis" in caplog.text


async def test_a_chore_that_fails_waits_before_it_is_tried_again(
    leads: Leads, background: Background
) -> None:
    """Without a pause it would load an API server that is in trouble already."""
    leads.troubles = [ClusterUnavailable("no API")]
    background.start("chore", work(leads))
    await leads.until(lambda: leads.done == 1)

    for _ in range(20):
        await asyncio.sleep(0)

    assert leads.done == 1
