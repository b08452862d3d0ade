from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from autoscale_enforcer.api.one_at_a_time import OneAtATime
from autoscale_enforcer.errors import TooLate

LONG = timedelta(seconds=30)


class Maker:
    """Makes numbered answers, each when it is let go on."""

    def __init__(self) -> None:
        self.begun = self.at_once = self.most = 0
        self.gate, self.first = asyncio.Event(), asyncio.Event()

    async def make(self) -> bytes:
        self.begun += 1
        self.first.set()
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        number = self.begun
        try:
            await self.gate.wait()
        finally:
            self.at_once -= 1
        return str(number).encode()


async def test_who_asks_while_one_is_made_shares_the_next() -> None:
    maker = Maker()
    one = OneAtATime("test", maker.make, LONG)
    first = asyncio.gather(*(one.answer() for _ in range(3)))
    await maker.first.wait()
    later = asyncio.gather(*(one.answer() for _ in range(3)))
    await asyncio.sleep(0)

    maker.gate.set()

    assert (await first, await later) == ([b"1"] * 3, [b"2"] * 3)
    assert maker.most == 1
    await one.close()


async def test_who_goes_away_takes_nobody_elses_answer_along() -> None:
    maker = Maker()
    one = OneAtATime("test", maker.make, LONG)
    gone, stays = asyncio.create_task(one.answer()), asyncio.create_task(one.answer())
    await maker.first.wait()

    gone.cancel()
    maker.gate.set()

    assert await stays == b"1"
    await one.close()


async def test_what_takes_too_long_is_given_up_and_the_next_is_made() -> None:
    maker = Maker()
    one = OneAtATime("test", maker.make, timedelta(seconds=1))

    with pytest.raises(TooLate):
        await one.answer()
    maker.gate.set()

    assert await one.answer() == b"2"
    await one.close()


async def test_it_rests_for_as_long_as_the_last_one_took() -> None:
    loop = asyncio.get_running_loop()
    times = list[float]()

    async def make() -> bytes:
        times.append(loop.time())
        await asyncio.sleep(0.02)
        times.append(loop.time())
        return b""

    one = OneAtATime("test", make, LONG)
    await one.answer()
    await one.answer()

    began, ended, next_began, _ = times
    assert next_began - ended >= 0.9 * (ended - began)


async def test_close_ends_what_is_under_way() -> None:
    maker = Maker()
    one = OneAtATime("test", maker.make, LONG)
    asked = asyncio.create_task(one.answer())
    await maker.first.wait()

    await one.close()

    assert maker.at_once == 0
    with pytest.raises(asyncio.CancelledError):
        await asked
