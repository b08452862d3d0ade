"""How many requests are worked on at once, and whose turn it is."""

from __future__ import annotations

import asyncio

import pytest

from autoscale_enforcer.api.door.turns import BEGUN_IN_A_ROUND, Turns
from autoscale_enforcer.errors import Overloaded

FLOOD, OTHER = "10.0.0.1", "10.0.0.2"


async def test_one_address_gets_half_of_the_turns() -> None:
    turns = Turns(4)
    await turns.begin(FLOOD)
    await turns.begin(FLOOD)

    with pytest.raises(Overloaded):
        turns.check(FLOOD)
    with pytest.raises(Overloaded):
        await turns.begin(FLOOD)

    await turns.begin(OTHER)
    assert turns.count == 3


async def test_all_addresses_together_get_no_more_than_there_are() -> None:
    turns = Turns(4)
    for number in range(4):
        await turns.begin(f"10.0.0.{number}")

    with pytest.raises(Overloaded):
        await turns.begin("10.0.0.9")

    turns.end("10.0.0.0")
    await turns.begin("10.0.0.9")


async def test_a_single_turn_may_be_anybodys() -> None:
    turns = Turns(1)

    await turns.begin(FLOOD)
    turns.end(FLOOD)

    assert (turns.count, turns._running) == (0, {})


async def begun(turns: Turns, order: list[str], address: str) -> None:
    await turns.begin(address)
    order.append(address)


async def test_a_request_that_is_alone_is_begun_at_once() -> None:
    turns, order = Turns(100), list[str]()
    work = begun(turns, order, FLOOD)

    with pytest.raises(StopIteration):
        work.send(None)

    assert order == [FLOOD]


async def test_whoever_floods_waits_for_itself() -> None:
    turns, order = Turns(1000), list[str]()
    flood = [asyncio.create_task(begun(turns, order, FLOOD)) for _ in range(100)]
    await asyncio.sleep(0)

    other = asyncio.create_task(begun(turns, order, OTHER))
    await other

    assert order.index(OTHER) <= 3 * BEGUN_IN_A_ROUND
    await asyncio.gather(*flood)
    assert len(order) == 101
    assert turns._waiting == {}


async def test_addresses_that_wait_take_turns() -> None:
    turns, order = Turns(1000), list[str]()
    addresses = [FLOOD] * 40 + [OTHER] * 40

    await asyncio.gather(*(begun(turns, order, address) for address in addresses))

    later = order[2 * BEGUN_IN_A_ROUND :][:40]
    assert abs(later.count(FLOOD) - later.count(OTHER)) <= 2 * BEGUN_IN_A_ROUND


async def test_who_goes_while_it_waits_takes_nobodys_turn() -> None:
    turns, order = Turns(1000), list[str]()
    tasks = [asyncio.create_task(begun(turns, order, FLOOD)) for _ in range(50)]
    await asyncio.sleep(0)

    for task in tasks[20:40]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert (len(order), turns.count, turns._waiting) == (30, 30, {})
