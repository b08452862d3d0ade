"""No error of a library leaves the package that wraps it: callers see ours, and what they mean."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

import autoscale_enforcer
from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.reading import read_books
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import said_row
from tests.conftest import StartServer
from tests.support.books import Books, pod, settings_at
from tests.support.servers import Server, async_client

PACKAGE = Path(autoscale_enforcer.__file__).parent
N1 = NodeName("n1")


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_nothing_but_the_ledger_knows_redis() -> None:
    knowing = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(name.split(".")[0] in ("redis", "hiredis") for name in imported(path))
    }

    assert {Path(name).parts[0] for name in knowing} == {"ledger"}
    allowed = {"client", "connection", "exchange", "faults", "link", "packing", "sentinel", "slots"}
    assert knowing <= {f"ledger/{name}.py" for name in allowed}


Ask = Callable[[Ledger], Awaitable[object]]

CALLS: dict[str, Ask] = {
    "reserve": lambda ledger: ledger.reserve_pod(
        PodUid("u1"), node=N1, said=said_row(pod("u1")), stamp=10
    ),
    "request": lambda ledger: ledger.request_permit(
        PodName("default/v1"),
        asked=Resources(1, 1),
        factor=Resources(1, 1),
        last_permit=None,
        stamp=10,
    ),
    "confirm": lambda ledger: ledger.confirm_bind(PodUid("u1"), node=N1),
    "lease": lambda ledger: ledger.take_lease(holder="a", token="b", lifetime=timedelta(1)),
    "refresh": lambda ledger: ledger.mirror.refresh(),
    "read_pod": lambda ledger: ledger.read_pod(uid=PodUid("u1")),
    "read_books": read_books,
    "stamp": lambda ledger: ledger.stamp(),
}


@pytest.fixture(params=CALLS)
def ask(request: pytest.FixtureRequest) -> Ask:
    return CALLS[request.param]


@pytest.fixture
def server(start_server: StartServer) -> Server:
    return start_server("valkey", tcp=True)


@pytest.fixture
async def ledger(server: Server) -> AsyncIterator[Ledger]:
    """A ledger with books, which has not connected yet."""
    books = Books(async_client(server), "valkey")
    await books.open()
    await books.put_node("n1")
    await books.ledger.close()
    await books.raw.aclose()
    ledger = Ledger.open(settings_at(server.tcp_url))
    yield ledger
    await ledger.close()


async def fails(ledger: Ledger, ask: Ask) -> str:
    with pytest.raises(LedgerUnavailable) as refused:
        await ask(ledger)
    return str(refused.value)


async def test_server_that_is_away(ledger: Ledger, server: Server, ask: Ask) -> None:
    server.kill()

    assert await fails(ledger, ask)


async def test_server_that_goes_away(ledger: Ledger, server: Server, ask: Ask) -> None:
    if ask is CALLS["stamp"]:
        return  # reckoned from the last answer
    await ledger.look()
    server.kill()

    assert await fails(ledger, ask)


async def test_server_whose_memory_is_full(ledger: Ledger, server: Server, ask: Ask) -> None:
    with server.client() as client:
        client.config_set("maxmemory", "1")
        before = client.dbsize()

    assert "maxmemory" in await fails(ledger, ask)

    with server.client() as client:
        client.config_set("maxmemory", "0")
        assert client.dbsize() == before
    await ledger.look()


async def test_server_that_is_only_a_replica(ledger: Ledger, server: Server, ask: Ask) -> None:
    with server.client() as client:
        client.replicaof("127.0.0.1", "1")

    assert await fails(ledger, ask)


async def test_password_that_is_wrong(ledger: Ledger, server: Server, ask: Ask) -> None:
    with server.client() as client:
        client.config_set("requirepass", "secret")

    message = await fails(ledger, ask)

    assert "secret" not in message


@pytest.mark.parametrize("rights", ["-@all", "+@all -script", "+@all -evalsha"])
async def test_user_without_the_rights(
    ledger: Ledger, server: Server, rights: str, ask: Ask
) -> None:
    if rights == "+@all -evalsha" and ask is CALLS["stamp"]:
        return  # the guard alone tells the time
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "resetchannels", *rights.split())

    assert await fails(ledger, ask)


async def test_server_that_is_no_redis(ask: Ask, tmp_path: Path) -> None:
    ledger = Ledger.open(settings_at(f"unix://{tmp_path}/none"))

    assert await fails(ledger, ask)

    await ledger.close()
