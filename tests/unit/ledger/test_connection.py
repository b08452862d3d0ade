"""Every kind of URL finds the primary; what is no such URL is refused with the reason."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
import redis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.backoff import NoBackoff

from autoscale_enforcer.errors import ConfigError, LedgerUnavailable
from autoscale_enforcer.ledger.client import Password, VerifiedConnection
from autoscale_enforcer.ledger.connection import ConnectionSettings, Connector, connector
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.ids import NodeName, PodUid
from tests.conftest import StartServer
from tests.support.books import SETTINGS, settings_at
from tests.support.ports import free_port
from tests.support.servers import SentinelServer, Server
from tests.support.waiting import until

CLUSTER_INFO = "return redis.call('CLUSTER', 'INFO')"
SLOT_KEY = "ae:{t}:nodes"
BOUND, N1, N2 = PodUid("u1"), NodeName("n1"), NodeName("n2")


class FirstClient(Protocol):
    async def __call__(self, url: str, *, slot_key: str = SLOT_KEY, **more: Any) -> Redis: ...


@pytest.fixture
async def first_client() -> AsyncIterator[FirstClient]:
    """`await first_client(url, **settings)`: the client that the URL leads to."""
    connectors: list[Connector] = []

    async def connect(url: str, *, slot_key: str = SLOT_KEY, **more: Any) -> Redis:
        settings = replace(SETTINGS.connection, url=url, **more)
        connectors.append(connector(settings, slot_key=slot_key))
        return await connectors[-1].connect()

    yield connect
    for found in connectors:
        await found.close()


def options(client: Redis) -> dict[str, Any]:
    found: dict[str, Any] = client.connection_pool.connection_kwargs
    return found


# URLs


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h:7000/3", {"host": "h", "port": 7000, "db": 3}),
        ("redis://h", {"host": "h", "db": 0}),
        ("unix:///run/s?db=2", {"path": "/run/s", "db": 2}),
        ("rediss://h:7000", {"host": "h", "port": 7000}),
    ],
)
async def test_url_says_where_redis_is(
    url: str, expected: dict[str, Any], first_client: FirstClient
) -> None:
    client = await first_client(url)

    found = {"db": 0, **options(client)}
    assert expected.items() <= found.items()


async def test_rediss_url_means_tls_that_verifies(first_client: FirstClient) -> None:
    client = await first_client("rediss://h")

    connection = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]

    assert isinstance(connection, VerifiedConnection)
    context = connection._connection_arguments()["ssl"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://h", "unknown scheme 'http'"),
        ("h:6379", "unknown scheme 'h'"),
        ("", "unknown scheme ''"),
        ("redis://[::1", "IPv6"),
        ("redis://h:port", "port"),
        ("redis://h?db=x", "db"),
        ("redis://h?no_such_option=1", "no_such_option cannot be set in the URL"),
        ("rediss://h?ssl_cert_reqs=none", "ssl_cert_reqs cannot be set in the URL"),
        ("redis+sentinel://h", "NAME"),
        ("redis+sentinel://h/primary/x", "NAME"),
        ("redis+sentinel://h:x/primary", "'h:x' is no host"),
        ("redis+sentinel://h,,i/primary", "'' is no host"),
        ("redis+sentinel://h:65536/primary", "'h:65536' is no host"),
        ("redis+cluster://", "'' is no host"),
        ("redis+cluster://h:0", "'h:0' is no host"),
    ],
)
def test_url_that_cannot_be_used_is_refused_with_the_reason(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        connector(ConnectionSettings(url=url), slot_key=SLOT_KEY)


@pytest.mark.parametrize(
    ("url", "password", "expected"),
    [
        ("redis://u:s%40@h", None, ("u", "s@")),
        ("redis://:s@h", None, ("s",)),
        ("redis://h", lambda: "settings", ("settings",)),
        ("redis://u@h", lambda: "settings", ("u", "settings")),
        ("redis://:url@h", lambda: "settings", ("settings",)),
    ],
)
async def test_password_comes_from_the_settings_or_else_from_the_url(
    url: str, password: Password | None, expected: tuple[str, ...], first_client: FirstClient
) -> None:
    client = await first_client(url, password=password)

    assert options(client)["credential_provider"].get_credentials() == expected


async def test_password_is_asked_for_with_each_new_connection(start_server: StartServer) -> None:
    server, password = start_server("valkey"), ["old"]
    with server.client() as client:
        client.config_set("requirepass", "old")
    settings = settings_at(server.url)
    connection = replace(settings.connection, password=lambda: password[0])
    ledger = Ledger.open(replace(settings, connection=connection))
    await ledger.note_binding(BOUND, node=N1)
    path = str(server.socket)
    with redis.Redis(unix_socket_path=path, password="old", protocol=2) as client:
        client.config_set("requirepass", "new")
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    with pytest.raises(LedgerUnavailable):
        await ledger.note_binding(BOUND, node=N2)

    password[0] = "new"

    assert await ledger.note_binding(BOUND, node=N2) == N1
    await ledger.close()


# The client


async def test_client_is_set_up_on_purpose(first_client: FirstClient) -> None:
    """Its defaults retry ten times with 5 s each, and ran one script eleven times."""
    client = await first_client("redis://h", socket_timeout=0.25)

    connection = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    retry = connection.retry
    assert retry.get_retries() == 0
    assert isinstance(retry._backoff, NoBackoff)
    assert options(client)["socket_timeout"] == 0.25
    assert options(client)["socket_connect_timeout"] == 0.25
    assert options(client)["protocol"] == 2


async def test_pool_is_bounded_and_waits(valkey_server: Server, first_client: FirstClient) -> None:
    client = await first_client(valkey_server.url, max_connections=2)

    answers = await asyncio.gather(*(client.ping() for _ in range(20)))

    pool = client.connection_pool
    assert isinstance(pool, BlockingConnectionPool)
    assert answers == [True] * 20
    assert pool.max_connections == 2


# Sentinel


@pytest.fixture
def sentinel() -> Iterator[SentinelServer]:
    with SentinelServer(tcp=True) as sentinel:
        yield sentinel


def sentinel_url(sentinel: Server) -> str:
    return f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/main/3"


async def test_sentinel_names_the_primary(
    sentinel: SentinelServer, start_server: StartServer, first_client: FirstClient
) -> None:
    primary = start_server("valkey", tcp=True)
    sentinel.watch(primary)

    client = await first_client(sentinel_url(sentinel))

    assert await client.ping()
    assert (options(client)["port"], options(client)["db"]) == (primary.port, 3)


async def test_sentinel_that_was_cut_off_is_not_believed(
    start_server: StartServer, first_client: FirstClient
) -> None:
    """The first that answered counted; one that had missed a failover named the old primary."""
    old, new = (start_server("valkey", tcp=True) for _ in range(2))
    with SentinelServer(tcp=True) as stale, SentinelServer(tcp=True) as fresh:
        stale.watch(old)
        fresh.watch(new)
        with fresh.client() as client:  # a config epoch comes from a failover or from a peer
            client.publish(
                "__sentinel__:hello",
                f"127.0.0.1,{free_port()},{'a' * 40},7,main,127.0.0.1,{new.port},7",
            )
            until(lambda: int(client.sentinel_master("main")["config-epoch"]) == 7)
        url = f"redis+sentinel://127.0.0.1:{stale.port},127.0.0.1:{fresh.port}/main"

        client_of_new = await first_client(url)

    assert options(client_of_new)["port"] == new.port


async def test_sentinels_are_asked_with_their_own_password(
    sentinel: SentinelServer, start_server: StartServer, first_client: FirstClient
) -> None:
    primary = start_server("valkey", tcp=True)
    with primary.client() as client:
        client.config_set("requirepass", "of-redis")
    sentinel.watch(primary)
    with sentinel.client() as client:
        client.execute_command("ACL", "SETUSER", "us", "on", ">of-sentinel", "+sentinel|master")
        client.execute_command("ACL", "SETUSER", "default", "-@all", "+acl")

    found = await first_client(
        sentinel_url(sentinel),
        password=lambda: "of-redis",
        sentinel_user="us",
        sentinel_password=lambda: "of-sentinel",
    )

    assert await found.ping()


async def test_sentinel_url_carries_credentials_for_redis(
    sentinel: SentinelServer, start_server: StartServer, first_client: FirstClient
) -> None:
    primary = start_server("valkey", tcp=True)
    with primary.client() as client:
        client.config_set("requirepass", "secret")
    sentinel.watch(primary)
    url = sentinel_url(sentinel).replace("127", ":secret@127", 1)

    client = await first_client(url)

    assert await client.ping()


@pytest.mark.parametrize("known", [True, False], ids=["no such name", "no Sentinel"])
async def test_sentinel_that_names_nobody_is_no_answer(
    sentinel: SentinelServer, known: bool, first_client: FirstClient
) -> None:
    url = sentinel_url(sentinel) if known else "redis+sentinel://127.0.0.1:1/main"

    with pytest.raises(LedgerUnavailable, match="no Sentinel names a primary 'main'"):
        await first_client(url, socket_timeout=0.2)


async def test_ledger_follows_the_primary_that_sentinel_names(
    sentinel: SentinelServer, start_server: StartServer
) -> None:
    """Field report 27: after a switch without a TCP drop, writes hit the demoted one for ever."""
    first, second = (start_server("valkey", tcp=True) for _ in range(2))
    sentinel.watch(first)
    ledger = Ledger.open(settings_at(sentinel_url(sentinel)))
    before = await ledger.note_binding(BOUND, node=N1)
    with first.client() as client:
        client.replicaof("127.0.0.1", second.port)
    sentinel.watch(second)

    after = await ledger.note_binding(BOUND, node=N2)

    assert (before, after) == (N1, N2)
    with second.client() as client:
        client.select(3)
        assert client.dbsize() == 1
    await ledger.close()


# Redis Cluster


@pytest.fixture
def cluster(start_server: StartServer) -> list[Server]:
    """Two servers, each with half of the slots."""
    servers = [start_server("valkey", "--cluster-enabled", "yes", tcp=True) for _ in range(2)]
    for server, slots in zip(servers, [(0, 8191), (8192, 16383)], strict=True):
        with server.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
    with servers[0].client() as client:
        other = servers[1]
        client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus_port)
    return servers


def until_known(servers: list[Server]) -> None:
    """Wait until each server knows who has every slot; pytest's time limit ends the wait."""
    for server in servers:
        with server.client() as client:
            while b"cluster_state:ok" not in client.eval(CLUSTER_INFO, 0):
                time.sleep(0.01)


async def test_cluster_is_asked_who_has_the_slot(
    cluster: list[Server], first_client: FirstClient
) -> None:
    until_known(cluster)
    url = ",".join(["redis+cluster://127.0.0.1:1", f"127.0.0.1:{cluster[0].port}"])

    clients = {
        key: await first_client(url, slot_key=key)
        for key in ("ae:{b}:nodes", "ae:{a}:nodes")  # slots 3300 and 15495
    }

    ports = [options(client)["port"] for client in clients.values()]
    assert ports == [cluster[0].port, cluster[1].port]
    for key, client in clients.items():
        assert await client.set(key, "1")


async def test_cluster_that_gives_no_answer_is_no_answer(first_client: FirstClient) -> None:
    with pytest.raises(LedgerUnavailable, match="no server of the Redis Cluster"):
        await first_client("redis+cluster://127.0.0.1:1", socket_timeout=0.2)


async def test_cluster_without_an_owner_of_the_slot_is_no_answer(
    start_server: StartServer, first_client: FirstClient
) -> None:
    server = start_server("valkey", "--cluster-enabled", "yes", tcp=True)

    with pytest.raises(LedgerUnavailable, match="no server of the Redis Cluster"):
        await first_client(f"redis+cluster://127.0.0.1:{server.port}")


# Direct


async def test_ledger_finds_a_server_that_was_started_again(start_server: StartServer) -> None:
    server = start_server("valkey", "--appendonly", "yes", "--appendfsync", "always")
    ledger = Ledger.open(settings_at(server.url))
    await ledger.note_binding(BOUND, node=N1)
    server.kill()
    with pytest.raises(LedgerUnavailable):
        await ledger.note_binding(BOUND, node=N1)

    server.start()

    assert await ledger.note_binding(BOUND, node=N2) == N1
    await ledger.close()


async def test_socket_path_that_is_missing_is_no_answer(tmp_path: Path) -> None:
    ledger = Ledger.open(settings_at(f"unix://{tmp_path}/none"))

    with pytest.raises(LedgerUnavailable):
        await ledger.stamp()

    await ledger.close()
