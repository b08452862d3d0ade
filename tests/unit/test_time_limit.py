"""Who waits too long is told so, and nobody else."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from autoscale_enforcer.time_limit import TimeLimit


def limit_of(seconds: float) -> TimeLimit:
    return TimeLimit(timedelta(seconds=seconds))


async def wait(limit: TimeLimit, seconds: float) -> float:
    """For how long it was let."""
    began = time.monotonic()
    try:
        with limit.each():
            await asyncio.sleep(seconds)
    except TimeoutError:
        return time.monotonic() - began
    return 0.0


async def test_each_has_its_own_time() -> None:
    limit, waits = limit_of(0.1), []
    for _ in range(4):
        waits.append(asyncio.create_task(wait(limit, 5)))
        await asyncio.sleep(0.03)

    took = await asyncio.gather(*waits)

    assert all(0.1 <= each < 1 for each in took)


async def test_who_is_done_in_time_is_left_alone() -> None:
    limit = limit_of(0.05)

    quick = await asyncio.gather(*(wait(limit, 0.01) for _ in range(3)))
    await asyncio.sleep(0.1)  # past the moment at which they would have been late
    slow = await wait(limit, 5)

    assert quick == [0.0] * 3
    assert slow >= 0.05


async def test_a_wait_that_is_cancelled_from_outside_ends_as_cancelled() -> None:
    waiting = asyncio.create_task(wait(limit_of(5), 5))
    await asyncio.sleep(0)

    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_one_that_is_late_and_cancelled_at_once_ends_as_cancelled() -> None:
    waiting = asyncio.create_task(wait(limit_of(0.01), 5))
    await asyncio.sleep(0)

    time.sleep(0.02)  # noqa: ASYNC251 - its timer is due when the loop goes on
    asyncio.get_running_loop().call_later(0, waiting.cancel)

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_an_outer_limit_ends_what_waits_within_an_inner_one() -> None:
    outer, inner = limit_of(0.05), limit_of(5)

    with pytest.raises(TimeoutError), outer.each(), inner.each():
        await asyncio.sleep(5)


async def test_an_inner_limit_leaves_the_outer_one_running() -> None:
    outer, inner = limit_of(0.1), limit_of(0.01)

    async def inner_first() -> None:
        with outer.each():
            assert await wait(inner, 5)
            await asyncio.sleep(5)

    with pytest.raises(TimeoutError):
        await inner_first()


async def test_a_future_that_is_late_ends_so_and_others_do_not() -> None:
    loop, limit = asyncio.get_running_loop(), limit_of(0.05)
    late, done, failed = (loop.create_future() for _ in range(3))
    loop.call_later(0.01, done.set_result, 1)
    loop.call_later(0.01, failed.set_exception, KeyError())

    answers = await asyncio.gather(*map(limit.of, (late, done, failed)), return_exceptions=True)

    assert [type(answer) for answer in answers] == [TimeoutError, int, KeyError]
    assert limit._waits == {}
