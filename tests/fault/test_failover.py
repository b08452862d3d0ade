"""Sentinels name another primary while every connection stays open: a primary, two replicas."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
import redis

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.calls import Leadership, LedgerSettings
from autoscale_enforcer.ledger.durability import Durability, Waiting
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Lead, Reserve
from autoscale_enforcer.ledger.reading import read_books
from autoscale_enforcer.ledger.verify import breaches
from autoscale_enforcer.model.facts import NodeFact
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import said_row
from tests.fault.kit.redis_group import NAME, RedisGroup
from tests.support.books import pod, settings_at

N1 = NodeName("n1")
LEADER = Leadership("token")
SECONDS = 15.0
"""From the Sentinels' decision to the next grant, at most."""

pytestmark = pytest.mark.long


@pytest.fixture
def group() -> Iterator[RedisGroup]:
    with RedisGroup() as group:
        yield group


@pytest.fixture
async def ledger(group: RedisGroup) -> AsyncIterator[Ledger]:
    await group.until_whole()
    hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in group.sentinels)
    patient = settings_at(f"redis+sentinel://{hosts}/{NAME}")
    await build(patient)
    usual = replace(
        patient, call_budget=timedelta(seconds=2), waiting=Waiting(durability=Durability.REPLICA)
    )
    connection = replace(usual.connection, socket_timeout=0.5)
    ledger = Ledger.open(replace(usual, connection=connection))
    yield ledger
    await ledger.close()


async def build(settings: LedgerSettings) -> None:
    """Books with one large node."""
    ledger = Ledger.open(settings)
    await ledger.take_lease(holder="us", token=LEADER.token, lifetime=timedelta(hours=1))
    building = await ledger.begin_build(LEADER)
    assert building is not None
    fact = NodeFact(uid="x", name=N1, resource_version="1", allocatable=Resources(10**6, 10**6))
    await ledger.put_node(fact, capacity=fact.allocatable, config_version="1", leader=building)
    assert await ledger.publish_build(building) is Lead.PUBLISHED
    await ledger.close()


class Callers:
    """Ask for one hold after the other, and settle the books as the leader would."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.told = ledger, list[str]()
        self.refused_at: list[float] = []
        self.told_at = 0.0

    async def ask(self, number: int) -> None:
        uid = f"u{number}"
        said = said_row(pod(uid, cpu=1, mem=1))
        try:
            stamp = await self.ledger.stamp()
            answer = await self.ledger.reserve_pod(PodUid(uid), node=N1, said=said, stamp=stamp)
            if answer.outcome is Reserve.UNSETTLED:
                await self.ledger.settle_ledger(LEADER)
        except LedgerUnavailable:
            self.refused_at.append(time.monotonic())
            return
        if answer.outcome is Reserve.HELD:
            self.told.append(uid)
            self.told_at = time.monotonic()

    async def ask_until(self, is_over: asyncio.Event) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            await self.ask(number)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["switch", "pause"])
async def test_writes_follow_the_primary_and_nothing_told_is_missing(
    group: RedisGroup, ledger: Ledger, how: str
) -> None:
    """Field report 27: after a switch without a TCP drop, writes hit the demoted one for ever."""
    callers, is_over = Callers(ledger), asyncio.Event()
    asking = asyncio.create_task(callers.ask_until(is_over))
    old = await group.until_whole()
    await until_told(callers, 20)

    if how == "switch":
        await until(lambda: switches(group))
    else:
        os.kill(old.pid, signal.SIGSTOP)
    await until(lambda: group.primary() not in (None, old))
    decided_at = time.monotonic()
    await until_told(callers, 20)
    resumed_after = time.monotonic() - decided_at
    if how == "pause":
        os.kill(old.pid, signal.SIGCONT)
        await until_told(callers, 20)
    is_over.set()
    await asking

    assert resumed_after < SECONDS
    books = await read_books(ledger, blobs=True)
    assert breaches(books) == []
    missing = {PodUid(uid) for uid in callers.told} - books.pods.keys()
    assert not missing or ledger.pipeline.noticed.drops
    assert ledger.pipeline.noticed.epochs >= 1


def switches(group: RedisGroup) -> bool:
    """Whether a Sentinel has begun a failover that it was told to begin; it refuses to while it
    has not heard of its replicas for a while.
    """
    with redis.Redis(port=group.sentinels[0].port) as sentinel:
        try:
            sentinel.sentinel_failover(NAME)
        except redis.ResponseError as refused:
            return "INPROG" in str(refused)
    return True


async def until_told(callers: Callers, more: int) -> None:
    """Wait for so many more holds; pytest's time limit ends the wait."""
    wanted = len(callers.told) + more
    await until(lambda: len(callers.told) >= wanted)


async def until(condition: Callable[[], bool]) -> None:
    def look() -> None:
        while not condition():
            time.sleep(0.02)

    await asyncio.to_thread(look)
