from __future__ import annotations

import asyncio
import time

import pytest
from tests.support.fake_api.samples import pod
from tests.support.fake_api.server import FakeApi
from tests.support.reflecting import Told, following

from autoscale_enforcer.cluster.kubernetes import paths
from autoscale_enforcer.cluster.kubernetes.budget import BudgetSettings, ReadBudget
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.errors import ClusterUnavailable
from autoscale_enforcer.objects.shapes import PodObject


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_budget_is_fifty_a_second_with_a_hundred_at_once() -> None:
    settings = BudgetSettings()

    assert (settings.per_second, settings.burst) == (50, 100)


async def test_burst_is_given_at_once_and_then_a_steady_rate() -> None:
    budget = ReadBudget(BudgetSettings(per_second=50, burst=10))
    began = time.monotonic()

    await asyncio.gather(*(budget.take() for _ in range(20)))

    assert 0.19 <= time.monotonic() - began < 30
    assert budget.waited >= 1


async def test_who_waits_is_served_in_order() -> None:
    budget = ReadBudget(BudgetSettings(per_second=100, burst=1))
    served: list[int] = []

    async def read(number: int) -> None:
        await budget.take()
        served.append(number)

    await asyncio.gather(*(read(number) for number in range(5)))

    assert served == [0, 1, 2, 3, 4]


async def test_who_would_wait_too_long_is_told_at_once_and_costs_the_others_nothing() -> None:
    clock = Clock()
    budget = ReadBudget(BudgetSettings(per_second=1, burst=1), clock=clock)
    await budget.take()
    clock.now = -2  # as if three were owed

    with pytest.raises(ClusterUnavailable, match="more than 1 reads a second"):
        await budget.take()
    clock.now = 1.0
    await budget.take()

    assert (budget.refused, budget.waited) == (1, 0)


async def test_budget_fills_to_its_burst_and_no_further() -> None:
    clock = Clock()
    budget = ReadBudget(BudgetSettings(per_second=10, burst=3), clock=clock)

    clock.now = 3600
    for _ in range(3):
        await budget.take()
    waited_for_burst = budget.waited
    await budget.take()

    assert (waited_for_burst, budget.waited) == (0, 1)


async def test_reads_and_pages_of_lists_cost_budget_and_writes_and_reflectors_do_not() -> None:
    budget = ReadBudget(BudgetSettings(per_second=0.001, burst=4))
    async with FakeApi() as api:
        for number in range(3):
            api.store.create("pods", pod(f"p{number}"))
        async with KubeApi(api.access(), budget=budget) as client:
            await client.get(paths.NODES + "/none", PodObject)
            pages = [page async for page in client.list_pages(paths.PODS, PodObject, limit=1)]
            for _ in range(9):
                await client.post("/api/v1/namespaces/default/pods", pod("p0"))
            async for _ in client.list_pages(paths.PODS, PodObject, limit=1, metered=False):
                pass
            with pytest.raises(ClusterUnavailable, match="reads a second"):
                await client.get(paths.NODES + "/none", PodObject)
        told = Told()
        async with following(api, told) as follower:
            await follower.synced.wait()

    assert len(pages) == 3
