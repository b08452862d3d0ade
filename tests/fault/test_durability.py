"""What is told is where `--durability` wants it, and what is not is not told. Real servers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta

import pytest

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.durability import Durability, Waiting
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Permit, Release, Reserve, ReserveAnswer
from autoscale_enforcer.ledger.scripts import load_scripts
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import said_row
from tests.support.books import Books, pod, settings_at, vm
from tests.support.proxy import Proxy
from tests.support.servers import Kind, Server, async_client
from tests.support.waiting import until

N1 = NodeName("n1")
RESERVE = load_scripts()["reserve_pod"]
LONG_ENOUGH = timedelta(seconds=20)
"""For a replica or a disk on a busy machine."""
IN_VAIN = timedelta(milliseconds=300)
"""For a replica that says nothing, however long."""

REPLICA = Waiting(durability=Durability.REPLICA, timeout=LONG_ENOUGH)
AOF = Waiting(durability=Durability.AOF, timeout=LONG_ENOUGH)

NOW = ("--repl-diskless-sync-delay", "0")
"""Else a replica is kept waiting for 5 s, for others might come."""


class Pair:
    """A primary and its replica."""

    def __init__(self, primary: Server, replica: Server) -> None:
        self.primary, self.replica = primary, replica

    def follow(self) -> None:
        with self.replica.client() as client:
            client.replicaof("127.0.0.1", self.primary.port)
        with self.primary.client() as client:
            until(lambda: bool(client.set("k", 1)) and client.wait(1, 100) == 1)

    def pause(self) -> None:
        """The replica is there and says nothing."""
        os.kill(self.replica.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.replica.pid, signal.SIGCONT)


@pytest.fixture(params=["valkey", pytest.param("redis", marks=pytest.mark.long)])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def pair(kind: Kind) -> Iterator[Pair]:
    with ExitStack() as stack:
        primary, replica = (stack.enter_context(Server(kind, *NOW, tcp=True)) for _ in range(2))
        pair = Pair(primary, replica)
        pair.follow()
        yield pair


@pytest.fixture
async def books(pair: Pair) -> AsyncIterator[Books]:
    """Books with node n1, in which a VM holds 1 core, on the primary; not waited for."""
    books = Books(async_client(pair.primary), "valkey")
    await books.open()
    await books.put_node("n1", 100_000, 100_000)
    await books.put_pod(pod("v1", node="n1", vm=vm(1000, 100)))
    yield books
    await books.ledger.close()
    await books.raw.aclose()


@pytest.fixture
async def proxy(pair: Pair) -> AsyncIterator[Proxy]:
    async with Proxy(pair.primary) as proxy:
        yield proxy


async def opened(url: str, waiting: Waiting) -> Ledger:
    # What the server is set up for is the subject of test_redis_setup.py.
    settings = settings_at(url, waiting=waiting, checks_server=False)
    connection = replace(settings.connection, socket_timeout=LONG_ENOUGH.total_seconds() + 5)
    ledger = Ledger.open(replace(settings, connection=connection))
    await ledger.look()
    return ledger


@pytest.fixture
async def ledger(books: Books, proxy: Proxy) -> AsyncIterator[Ledger]:
    """The ledger under test, with durability `replica`."""
    ledger = await opened(proxy.url, REPLICA)
    proxy.commands.clear()
    yield ledger
    await ledger.close()


@pytest.fixture
async def hasty(books: Books, pair: Pair) -> AsyncIterator[Ledger]:
    """The same for a replica that says nothing: it waits for a moment only."""
    ledger = await opened(pair.primary.url, replace(REPLICA, timeout=IN_VAIN))
    yield ledger
    await ledger.close()


async def reserve(ledger: Ledger, uid: str = "u1", *, stamp: int = 10) -> ReserveAnswer:
    said = said_row(pod(uid, cpu=1, mem=1))
    return await ledger.reserve_pod(PodUid(uid), node=N1, said=said, stamp=stamp)


async def grow(ledger: Ledger, cpu: int = 2000) -> Permit:
    answer = await ledger.request_permit(
        PodName("default/v1"),
        asked=Resources(cpu, 100),
        factor=Resources(1, 1),
        last_permit=None,
        stamp=await ledger.stamp(),
    )
    return answer.outcome


async def test_hold_that_is_told_is_at_the_replica(
    ledger: Ledger, pair: Pair, books: Books
) -> None:
    answer = await reserve(ledger)
    pair.primary.kill()

    assert answer.outcome is Reserve.HELD
    with pair.replica.client() as client:
        assert client.hexists(books.keys.key("pods"), "u1")


async def test_change_that_the_replica_lacks_is_not_told(
    hasty: Ledger, pair: Pair, books: Books
) -> None:
    pair.pause()

    with pytest.raises(LedgerUnavailable, match="0 of 1 replicas"):
        await reserve(hasty)
    with pytest.raises(LedgerUnavailable, match="0 of 1 replicas"):
        await grow(hasty)

    assert await books.pod("u1") is not None
    assert hasty.pipeline.noticed.unwaited == 2
    pair.resume()


async def unreserve(ledger: Ledger) -> Release:
    return await ledger.unreserve_pod(PodUid("u1"), node=N1, stamp=20)


async def test_repeat_that_changes_nothing_is_not_told_either(
    ledger: Ledger, hasty: Ledger, pair: Pair
) -> None:
    """Behind commands that wrote nothing, Valkey's WAIT says that every replica has it all."""
    await reserve(ledger, stamp=10)
    pair.pause()
    for _ in range(3):
        with pytest.raises(LedgerUnavailable, match="0 of 1 replicas"):
            await unreserve(hasty)

    pair.resume()

    assert await unreserve(ledger) is Release.NOTHING


async def test_repeat_over_a_new_connection_is_not_told_either(
    ledger: Ledger, hasty: Ledger, pair: Pair
) -> None:
    await reserve(ledger, stamp=10)
    pair.pause()
    with pytest.raises(LedgerUnavailable):
        await unreserve(hasty)
    other = await opened(pair.primary.url, replace(REPLICA, timeout=IN_VAIN))

    with pytest.raises(LedgerUnavailable, match="0 of 1 replicas"):
        await unreserve(other)

    pair.resume()
    await other.close()


async def test_reads_are_answered_while_the_replica_says_nothing(hasty: Ledger, pair: Pair) -> None:
    pair.pause()
    refused = asyncio.create_task(reserve(hasty))

    await asyncio.gather(*(hasty.mirror.refresh() for _ in range(5)))
    known = await hasty.read_pod(uid=PodUid("v1"))

    assert known is not None
    with pytest.raises(LedgerUnavailable):
        await refused
    pair.resume()


async def test_read_in_the_same_pipeline_does_not_wait(books: Books, pair: Pair) -> None:
    waiting = replace(REPLICA, timeout=timedelta(seconds=2))
    ledger = await opened(pair.primary.url, waiting)
    pair.pause()
    refused = asyncio.create_task(reserve(ledger))
    read = asyncio.create_task(ledger.read_pod(uid=PodUid("v1")))

    done, _ = await asyncio.wait({refused, read}, return_when=asyncio.FIRST_COMPLETED)

    assert done == {read}
    with pytest.raises(LedgerUnavailable):
        await refused
    pair.resume()
    await ledger.close()


async def test_whole_pipeline_shares_one_wait(ledger: Ledger, proxy: Proxy) -> None:
    await asyncio.gather(*(reserve(ledger, f"u{n}") for n in range(50)))

    waits = [command for command in proxy.commands if command[0] == b"WAIT"]
    assert waits == [[b"WAIT", b"1", b"20000"]]


async def test_reads_and_facts_ask_for_no_wait(ledger: Ledger, proxy: Proxy) -> None:
    await ledger.mirror.refresh()
    await ledger.read_pod(uid=PodUid("v1"))
    await ledger.confirm_bind(PodUid("v1"), node=N1)

    assert {command[0] for command in proxy.commands} == {b"EVAL", b"EVALSHA"}


async def test_look_as_a_promise_needs_the_replica(
    ledger: Ledger, hasty: Ledger, pair: Pair
) -> None:
    """Readiness asks so: a replica that can tell nothing is not ready."""
    assert (await ledger.look(as_a_promise=True)).state == "SETTLED"
    pair.pause()

    with pytest.raises(LedgerUnavailable, match="0 of 1 replicas"):
        await hasty.look(as_a_promise=True)

    assert (await hasty.look()).state == "SETTLED"
    pair.resume()


async def test_without_durability_nothing_is_waited_for(
    books: Books, pair: Pair, proxy: Proxy
) -> None:
    ledger = await opened(proxy.url, Waiting())
    pair.pause()

    assert (await reserve(ledger)).outcome is Reserve.HELD
    assert b"WAIT" not in {command[0] for command in proxy.commands}
    pair.resume()
    await ledger.close()


async def test_primary_demoted_while_it_waits_tells_nothing(
    ledger: Ledger, pair: Pair, books: Books, proxy: Proxy
) -> None:
    pair.pause()
    refused = asyncio.create_task(reserve(ledger))
    await proxy.until_sent(RESERVE.sha)
    with pair.primary.client() as client:
        client.replicaof("127.0.0.1", pair.replica.port)

    with pytest.raises(LedgerUnavailable):
        await refused
    pair.resume()


# The primary's disk


async def disk(policy: str, server: Server, waiting: Waiting = AOF) -> Ledger:
    books = Books(async_client(server), "valkey")
    await books.open()
    await books.put_node("n1", 100_000, 100_000)
    await books.ledger.close()
    await books.raw.aclose()
    with server.client() as client:
        client.config_set("appendonly", "yes")
        client.config_set("appendfsync", policy)
        until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    return await opened(server.url, waiting)


async def test_hold_that_is_told_is_on_the_disk() -> None:
    with Server("valkey") as server:
        ledger = await disk("always", server)
        answer = await reserve(ledger)
        repeated = await reserve(ledger)
        server.kill()
        server.args = ("--appendonly", "yes")
        server.start()

        assert (answer.outcome, repeated.outcome) == (Reserve.HELD, Reserve.HELD)
        assert await ledger.read_pod(uid=PodUid("u1"))
        await ledger.close()


async def test_change_that_is_not_on_the_disk_is_not_told() -> None:
    with Server("valkey") as server:
        ledger = await disk("no", server, replace(AOF, timeout=IN_VAIN))

        for _ in range(2):
            with pytest.raises(LedgerUnavailable, match="not on Redis' disk"):
                await reserve(ledger)

        await ledger.close()
