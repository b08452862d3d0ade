"""Long-running tasks: none dies unseen, all end together."""

from __future__ import annotations

import asyncio

import pytest

from autoscale_enforcer import background as module
from autoscale_enforcer.background import Background


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESTART_AFTER", 0)


async def test_a_task_that_fails_is_counted_logged_and_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs, third = 0, asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            third.set()
            await asyncio.Event().wait()
        raise ZeroDivisionError

    async with Background() as background:
        background.start("reader", work)
        await third.wait()

    assert background.failures == {"reader": 2}
    assert caplog.text.count("reader failed and is started again") == 2
    assert "ZeroDivisionError" in caplog.text


async def test_a_task_that_ends_is_started_again() -> None:
    ends: asyncio.Queue[None] = asyncio.Queue()

    async with Background() as background:
        background.start("reader", lambda: ends.put(None))
        for _ in range(3):
            await ends.get()

    assert background.failures == {}


async def test_all_end_together_even_one_that_fails_while_it_ends() -> None:
    ended = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)
            if name == "b":
                raise ZeroDivisionError

    async with Background() as background:
        for name in "abc":
            background.start(name, lambda name=name: work(name))  # type: ignore[misc]
        await asyncio.sleep(0)

    assert sorted(ended) == ["a", "b", "c"]


async def test_tasks_are_named() -> None:
    async with Background() as background:
        background.start("reader", asyncio.Event().wait)  # type: ignore[arg-type]

        assert "reader" in {task.get_name() for task in asyncio.all_tasks()}
