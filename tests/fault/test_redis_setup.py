"""Servers that forget, refuse or are not the one to ask: noticed, and never a grant. Real ones."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.durability import Durability, Waiting
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Reserve, ReserveAnswer
from autoscale_enforcer.ledger.reading import read_books
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.rows import said_row
from tests.conftest import StartServer
from tests.support.books import Books, pod, settings_at, vm
from tests.support.servers import SentinelServer, Server, async_client
from tests.support.waiting import until

N1 = NodeName("n1")


@pytest.fixture
def server(start_server: StartServer) -> Server:
    return start_server("valkey", "--appendonly", "yes", "--appendfsync", "always", tcp=True)


@pytest.fixture
async def books(server: Server) -> AsyncIterator[Books]:
    books = Books(async_client(server), "valkey")
    await books.open()
    await books.put_node("n1", 100_000, 100_000)
    await books.put_pod(pod("v1", node="n1", vm=vm(1000, 100)))
    yield books
    await books.ledger.close()
    await books.raw.aclose()


@pytest.fixture
async def ledger(books: Books, server: Server) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(settings_at(server.tcp_url))
    await ledger.look()
    yield ledger
    await ledger.close()


async def reserve(ledger: Ledger, uid: str = "u1") -> ReserveAnswer:
    said = said_row(pod(uid, cpu=1, mem=1))
    return await ledger.reserve_pod(PodUid(uid), node=N1, said=said, stamp=10)


async def answered(ledger: Ledger, uid: str) -> ReserveAnswer:
    """Asked again where the connection was lost meanwhile: a refusal is not told then."""
    with contextlib.suppress(LedgerUnavailable):
        return await reserve(ledger, uid)
    return await reserve(ledger, uid)


async def until_told(ledger: Ledger) -> None:
    """A hold, asked for again where a busy replica of Redis was slower than its time."""
    while True:
        with contextlib.suppress(LedgerUnavailable):
            assert (await reserve(ledger)).outcome is Reserve.HELD
            return


async def is_refused(ledger: Ledger, uid: str = "u1") -> str:
    with pytest.raises(LedgerUnavailable) as refused:
        await reserve(ledger, uid)
    return str(refused.value)


def is_busy(server: Server) -> bool:
    with server.client() as client:
        try:
            client.ping()
        except redis.ResponseError:
            return True
    return False


async def until_async(condition: Callable[[], bool]) -> None:
    """The same, off the loop."""
    await asyncio.to_thread(until, condition)


# Field report 28, b: with keys evicted nothing is granted, no key is no empty node


async def test_evicted_rows_are_noticed_before_the_next_grant(
    ledger: Ledger, books: Books, server: Server
) -> None:
    rows = [books.keys.key(name) for name in ("nodes", "pods", "meta")]
    with server.client() as client:
        client.config_set("maxmemory-policy", "allkeys-random")
        most = client.info("memory")["used_memory"]
        while client.exists(*rows) == len(rows):
            most -= 500
            client.config_set("maxmemory", most)  # makes room at once
        client.config_set("maxmemory", 0)

    assert "not built" in await is_refused(ledger)
    assert (await ledger.look()).state == "UNBUILT"


# Field report 28, c: a server whose memory is full


async def test_full_server_refuses_and_the_books_stay(
    ledger: Ledger, books: Books, server: Server
) -> None:
    before = await books.dump()
    with server.client() as client:
        client.config_set("maxmemory", 1)
        refused = await is_refused(ledger)
        client.config_set("maxmemory", 0)

    assert "maxmemory" in refused
    assert await books.dump() == before
    assert (await ledger.look()).state == "SETTLED"


# Field report 28, a: the promoted one lacks what was acknowledged


NOW = ("--appendonly", "yes", "--repl-diskless-sync-delay", "0")


@pytest.fixture
async def replica(server: Server, books: Books, start_server: StartServer) -> Server:
    """Follows the server, and has all of its books."""
    replica = start_server("valkey", *NOW, tcp=True)
    follow(replica, server)
    await settle(books)  # with its first replica a server begins a new history
    return replica


def follow(replica: Server, server: Server) -> None:
    with replica.client() as client:
        client.replicaof("127.0.0.1", server.port)
        until(lambda: client.info("replication")["master_link_status"] == "up")


async def settle(books: Books) -> None:
    await books.ledger.look()
    await books.ledger.settle_ledger(books.leader)


def catch_up(server: Server) -> None:
    """Until its replica has everything."""
    with server.client() as client:
        client.set("k", 1)
        until(lambda: client.wait(1, 100) == 1)


def promote(replica: Server) -> None:
    with replica.client() as client:
        client.replicaof("NO", "ONE")


@pytest.mark.parametrize("has_it", [True, False], ids=["with the hold", "without the hold"])
async def test_promotion_shows_whether_acknowledged_writes_are_gone(
    books: Books, server: Server, replica: Server, has_it: bool
) -> None:
    with SentinelServer(tcp=True) as sentinel:
        sentinel.watch(server)
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/main"
        ledger = Ledger.open(settings_at(url))
        if has_it:
            held = await reserve(ledger)
            catch_up(server)
            promote(replica)
        else:
            promote(replica)
            held = await reserve(ledger)
        sentinel.watch(replica)
        server.kill()

        refused = await answered(ledger, "u2")
        entries = (await read_books(ledger)).journal

        assert (held.outcome, refused.outcome) == (Reserve.HELD, Reserve.UNSETTLED)
        noticed = ledger.pipeline.noticed
        assert (noticed.epochs, noticed.drops, noticed.drops_unclear) == (1, int(not has_it), 0)
        whats = [entry.what for entry in entries]
        assert ("suspect" in whats, "dropped" in whats) == (True, not has_it)
        assert (await ledger.read_pod(uid=PodUid("u1")) is not None) is has_it
        await ledger.close()


async def test_restart_without_the_last_writes_is_unclear_and_noticed(
    ledger: Ledger, books: Books, server: Server
) -> None:
    held = await reserve(ledger)
    server.kill()
    server.start()

    refused = await answered(ledger, "u2")

    assert (held.outcome, refused.outcome) == (Reserve.HELD, Reserve.UNSETTLED)
    assert ledger.pipeline.noticed.drops_unclear == 1


# Which primary


async def test_demotion_and_promotion_of_the_same_server_is_noticed(
    ledger: Ledger, server: Server, replica: Server
) -> None:
    """A connection outlived both, with the run id unchanged and the last grant gone."""
    with server.client() as client:
        run_id = client.info("server")["run_id"]
        promote(replica)
        held = await reserve(ledger)
        follow(server, replica)
        promote(server)
        assert client.info("server")["run_id"] == run_id

    refused = await reserve(ledger, "u2")

    assert (held.outcome, refused.outcome) == (Reserve.HELD, Reserve.UNSETTLED)
    assert await ledger.read_pod(uid=PodUid("u1")) is None


async def test_primary_that_lost_its_replicas_is_not_believed_for_ever(
    books: Books, server: Server, replica: Server
) -> None:
    """Field report 27: its connections stay open, and no write ever passes."""
    with SentinelServer(tcp=True) as sentinel:
        sentinel.watch(server)
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/main"
        ledger = Ledger.open(settings_at(url))
        await ledger.look()
        promote(replica)
        with server.client() as client:
            client.config_set("min-replicas-to-write", 1)
        assert "Not enough good replicas" in await is_refused(ledger)
        sentinel.watch(replica)

        answer = await reserve(ledger)

        assert answer.outcome is Reserve.UNSETTLED
        await ledger.close()


async def test_primary_whose_replicas_do_not_answer_is_looked_for_again(
    books: Books, server: Server, replica: Server
) -> None:
    """Cut off, it goes on answering everything but WAIT."""
    waiting = Waiting(durability=Durability.REPLICA, timeout=timedelta(milliseconds=100))
    with SentinelServer(tcp=True) as sentinel:
        sentinel.watch(server)
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/main"
        ledger = Ledger.open(settings_at(url, waiting=waiting))
        await until_told(ledger)
        catch_up(server)
        promote(replica)
        sentinel.watch(replica)
        assert "0 of 1 replicas" in await is_refused(ledger, "u2")

        await ledger.look()

        assert ledger.pipeline.guard is not None
        assert ledger.pipeline.guard.state == "SUSPECT"
        await ledger.close()


# Answers that say no: nothing is told, nothing is changed


@pytest.mark.parametrize(
    ("setting", "value", "back", "words"),
    [
        ("min-replicas-to-write", "1", "0", "Not enough good replicas"),
        ("maxmemory", "1", "0", "maxmemory"),
    ],
)
async def test_server_that_takes_no_writes_makes_us_unready(
    ledger: Ledger, books: Books, server: Server, setting: str, value: str, back: str, words: str
) -> None:
    before = await books.dump()
    with server.client() as client:
        client.config_set(setting, value)
        refused = await is_refused(ledger)
        with pytest.raises(LedgerUnavailable, match=words):
            await ledger.look(as_a_promise=True)
        client.config_set(setting, back)

    assert words in refused
    assert await books.dump() == before
    assert (await ledger.look(as_a_promise=True)).state == "SETTLED"


async def test_server_busy_with_a_script_refuses(
    ledger: Ledger, books: Books, server: Server
) -> None:
    with server.client() as client:
        client.config_set("busy-reply-threshold", 1)
    endless = asyncio.create_task(
        books.raw.eval("while true do local x = redis.call('GET', 'x') end", 0)
    )
    await asyncio.sleep(0)
    try:
        await until_async(lambda: is_busy(server))
        refused = await is_refused(ledger)
    finally:
        with server.client() as client:
            client.execute_command("SCRIPT", "KILL")
        await asyncio.gather(endless, return_exceptions=True)

    assert "BUSY" in refused.upper()
    assert await books.pod("u1") is None
    assert (await reserve(ledger)).outcome is Reserve.HELD


async def test_user_who_may_not_load_scripts_makes_us_unready(
    ledger: Ledger, server: Server
) -> None:
    with server.client() as client:
        client.execute_command("SCRIPT", "FLUSH")
        client.execute_command("ACL", "SETUSER", "default", "-script|load")

    with pytest.raises(LedgerUnavailable, match="loads no scripts"):
        await ledger.look(as_a_promise=True)


# At the start


async def test_serve_ends_with_words_on_a_server_that_evicts(
    tmp_path: Path, start_server: StartServer
) -> None:
    server = start_server("valkey", "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
    cluster = tmp_path / "cluster.json"
    cluster.write_text('{"kind": "List", "items": []}')
    ports = [f"--{door}-port=0" for door in ("extender", "agent", "admin")]
    command = ("-m", "autoscale_enforcer.cli.main", "serve", "--redis-url", server.url)

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command, "--cluster", f"file:{cluster}", *ports),
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()

    assert process.returncode == 2
    assert b"--redis-url: maxmemory-policy is allkeys-lru" in errors
