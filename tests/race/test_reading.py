"""Verify, over and over, while everything about its rows changes: never a breach, never a miss."""

from __future__ import annotations

import asyncio
import random

import pytest

from autoscale_enforcer.ledger import gathered, reads
from autoscale_enforcer.ledger.reading import find_breaches, read_books
from autoscale_enforcer.ledger.verify import breaches
from tests.conftest import ClientOf
from tests.support.books import Books, pod, vm

NODES, PODS, CHANGERS, ROUNDS = 12, 20, 4, 9


class Changer:
    """Does to its own pods, and to shared nodes, what may be done."""

    def __init__(self, books: Books, number: int) -> None:
        self.books, self.number = books, number
        self.random = random.Random(number)
        self.is_over, self.done = False, 0

    async def run(self) -> None:
        while not self.is_over:
            await self.change(f"c{self.number}-{self.random.randrange(PODS)}")
            self.done += 1
            await asyncio.sleep(0.002)  # so that the reader has a share of the loop

    async def change(self, uid: str) -> None:
        books, stamp = self.books, await self.books.ledger.stamp()
        node = f"n{self.random.randrange(NODES)}"
        rv = str(stamp)
        match self.random.randrange(8):
            case 0 | 1:
                await books.reserve(pod(uid, cpu=10, mem=1), node, stamp=stamp)
            case 2:
                row = await books.pod(uid)
                await books.unreserve(uid, row.node if row else node, stamp=stamp)
            case 3:
                await books.put_pod(pod(uid, rv=rv, node=node, vm=vm(20, 2)))
            case 4:
                await books.put_pod(pod(uid, rv=rv))
            case 5:
                await books.request(uid, 20 + stamp % 9, 2, unit=(1, 1), stamp=stamp)
            case 6:
                await books.delete_pod(uid)
                await books.put_pod(pod(f"{uid}-{rv}", name=uid, rv=rv))
            case _:
                await books.put_node(node, 4000 + stamp % 9, 800, rv=rv)


async def test_what_is_read_while_it_changes_adds_up(
    client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "SCAN_PORTION", 5)
    monkeypatch.setattr(gathered, "_TOGETHER", 10)
    books = Books(client_of("valkey"), "valkey")
    await books.raw.config_set("hash-max-listpack-entries", 1)
    await books.open(settle_ms=1)
    for number in range(NODES):
        await books.put_node(f"n{number}")
    await books.put_node("wrong")
    reader = books.another()
    changers = [Changer(books, number) for number in range(CHANGERS)]
    running = [asyncio.create_task(changer.run()) for changer in changers]

    found, wholes = [], []
    for number in range(ROUNDS):
        found += await find_breaches(reader)
        if number % 3 == 0:
            whole = await read_books(reader)
            whole.journal.clear()
            wholes += breaches(whole)
    await books.falsify("wrong", reserved_cpu=7)
    planted = await find_breaches(reader)

    for changer in changers:
        changer.is_over = True
    await asyncio.gather(*running)
    await reader.close()
    await books.ledger.close()
    assert (found, wholes) == ([], [])
    assert {breach.subject for breach in planted} == {"wrong"}
    assert sum(changer.done for changer in changers) > ROUNDS * 10
