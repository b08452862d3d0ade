"""`/readyz` is 200 where a grant made now could be told, and `/livez` whatever Redis does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import redis

from tests.conftest import StartServer
from tests.support.cluster_double import ClusterDouble
from tests.support.replica import Kind, Replica, running
from tests.support.servers import Server, async_client

Change = Callable[[redis.Redis], object]


def becomes_a_replica(client: redis.Redis) -> object:
    return client.replicaof("127.0.0.1", "1")


def loses_its_replicas(client: redis.Redis) -> object:
    return client.config_set("min-replicas-to-write", 1)


def fills_up(client: redis.Redis) -> object:
    return client.config_set("maxmemory", 1)


def is_flushed(client: redis.Redis) -> object:
    return client.flushall()


def forgets_scripts_for_good(client: redis.Redis) -> object:
    client.script_flush()
    return client.execute_command("ACL", "SETUSER", "default", "-script|load")  # type: ignore[no-untyped-call]


def takes_no_scripts(client: redis.Redis) -> object:
    return client.execute_command("ACL", "SETUSER", "default", "-eval", "-evalsha")  # type: ignore[no-untyped-call]


@pytest.fixture
def server(start_server: StartServer) -> Server:
    return start_server("valkey")


@pytest.fixture
async def replica(server: Server, cluster: ClusterDouble) -> AsyncIterator[Replica]:
    raw = async_client(server)
    async with running(server.url, raw, cluster, Kind()) as replica:
        await replica.lead()
        yield replica
    await raw.aclose()


@pytest.mark.parametrize(
    "change",
    [
        becomes_a_replica,
        loses_its_replicas,
        fills_up,
        is_flushed,
        forgets_scripts_for_good,
        takes_no_scripts,
    ],
)
async def test_it_is_alive_and_not_ready(replica: Replica, server: Server, change: Change) -> None:
    before = (await replica.send("admin", "/readyz", method="GET")).status
    with server.client() as client:
        change(client)

    ready = await replica.send("admin", "/readyz", method="GET")
    alive = await replica.send("admin", "/livez", method="GET")

    assert (before, ready.status, alive.status) == (200, 503, 200)
    assert ready.text.strip()


async def test_it_is_ready_again_once_redis_takes_writes(replica: Replica, server: Server) -> None:
    with server.client() as client:
        loses_its_replicas(client)
        refused = await replica.send("admin", "/readyz", method="GET")
        client.config_set("min-replicas-to-write", 0)

    assert refused.status == 503
    assert (await replica.send("admin", "/readyz", method="GET")).status == 200
