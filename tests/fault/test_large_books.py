"""Whoever looks at a large ledger takes no grant's time. On Debian's Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest

from autoscale_enforcer.api.admin import admin_app
from autoscale_enforcer.api.door.front_door import FrontDoor
from autoscale_enforcer.config.settings import LimitSettings
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Permit
from autoscale_enforcer.ledger.transfer import export_books
from tests.conftest import ClientOf
from tests.support.books import GIB, Books, pod, vm

NODES, PODS, AT_ONCE = 1_600, 50_000, 200
HELD_US = 100_000
"""Longer than any script may have taken; one read of everything took 250 ms."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
async def books(client_of: ClientOf) -> AsyncIterator[Books]:
    books = Books(client_of("redis"), "redis")
    await books.open()
    for start in range(0, NODES, AT_ONCE):
        nodes = (f"n{number}" for number in range(start, min(start + AT_ONCE, NODES)))
        await asyncio.gather(*(books.put_node(name, 1 << 29, 60 << 40) for name in nodes))
    for start in range(0, PODS, AT_ONCE):
        numbers = range(start, start + AT_ONCE)
        facts = (
            pod(f"u{n}", node=f"n{n % NODES}", vm=vm(1000, GIB, most=(8000, 32 * GIB)))
            for n in numbers
        )
        await asyncio.gather(*(books.put_pod(fact) for fact in facts))
    yield books
    await books.ledger.close()


@dataclass(slots=True)
class Agents:
    """VMs that ask for more and for less all the time."""

    books: Books
    is_over: bool = False
    answers: list[Permit] = field(default_factory=list)

    async def run(self, first: int) -> None:
        number = first
        while not self.is_over:
            number = (number + 37) % PODS
            cpu, stamp = 1000 + 250 * (number % 3), await self.books.ledger.stamp()
            answer = await self.books.request(f"u{number}", cpu, GIB, unit=(250, GIB), stamp=stamp)
            self.answers.append(answer.outcome)
            await asyncio.sleep(0.01)


async def verified(ledger: Ledger) -> object:
    door = FrontDoor(admin_app(ledger, replica="r1"), LimitSettings())
    await door.start()
    port = await door.listen("127.0.0.1", 0, reuse_port=False)
    url = f"http://127.0.0.1:{port}/api/v1/verify"
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as reply:
            return reply.status, await reply.json(content_type=None)
    finally:
        await door.close()


async def test_verify_and_export_let_grants_go_on(books: Books) -> None:
    other = books.another()
    await books.raw.config_set("slowlog-log-slower-than", HELD_US)
    await books.raw.slowlog_reset()
    agents = Agents(books)
    running = [asyncio.create_task(agents.run(number)) for number in range(5)]

    answer = await verified(other)
    asked = len(agents.answers)
    await export_books(other)

    agents.is_over = True
    await asyncio.gather(*running)
    slow = await books.raw.slowlog_len()
    await other.close()
    assert answer == (200, {"breaches": []})
    assert asked > 100, "hardly anything changed meanwhile: it proves nothing"
    assert set(agents.answers) == {Permit.PERMIT}
    assert slow == 0
