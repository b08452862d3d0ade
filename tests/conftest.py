"""Fixtures that many tests share: servers, clients, and the check for leftover tasks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Protocol

import hypothesis
import pytest
import redis.asyncio

from tests.support.servers import AnyKind, Kind, Server, async_client, fake_client, servers_by_kind

# A slow machine is no fault of the code; pytest-timeout bounds the whole test.
hypothesis.settings.register_profile("project", deadline=None, print_blob=True)
hypothesis.settings.load_profile("project")


class StartServer(Protocol):
    def __call__(self, kind: Kind, *args: str, tcp: bool = False) -> Server: ...


ClientOf = Callable[[AnyKind], redis.asyncio.Redis]


def pytest_itemcollected(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.function):
        # First in, so last out: what other fixtures started must have ended by then.
        item.fixturenames.insert(0, "no_task_outlives_its_test")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests have recorded as "printed": a worker's own prints are lost."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    for report in reports:
        for name, text in report.user_properties:
            if name == "printed":
                terminalreporter.write_line(str(text))


@pytest.fixture
async def no_task_outlives_its_test() -> AsyncIterator[None]:
    """Fail an async test that leaves tasks pending; added to each one above."""
    yield
    for _ in range(10):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks left pending: {left}"


@pytest.fixture(scope="session")
def _servers() -> Iterator[dict[Kind, Server]]:
    with servers_by_kind() as servers:
        yield servers


@pytest.fixture
def server_of(_servers: dict[Kind, Server]) -> Callable[[Kind], Server]:
    """`server_of(kind)`: this worker's server of that kind in its default settings, flushed."""

    def flushed(kind: Kind) -> Server:
        if kind not in _servers:
            _servers[kind] = Server(kind).__enter__()
        _servers[kind].flush()
        return _servers[kind]

    return flushed


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """`start_server(kind, *config_args, tcp=False)`: a server of this test's own."""
    with ExitStack() as stack:
        yield lambda kind, *args, tcp=False: stack.enter_context(Server(kind, *args, tcp=tcp))


@pytest.fixture
async def client_of(server_of: Callable[[Kind], Server]) -> AsyncIterator[ClientOf]:
    """`client_of(kind)`: a client of a flushed server of that kind, fakeredis included."""
    async with AsyncExitStack() as stack:

        def connect(kind: AnyKind) -> redis.asyncio.Redis:
            client = fake_client() if kind == "fakeredis" else async_client(server_of(kind))
            stack.push_async_callback(client.aclose)
            return client

        yield connect


@pytest.fixture
def valkey_server(server_of: Callable[[Kind], Server]) -> Server:
    """This worker's Valkey, flushed."""
    return server_of("valkey")


@pytest.fixture
def redis_url(valkey_server: Server) -> str:
    """The address of this worker's Valkey, flushed."""
    return valkey_server.url


@pytest.fixture
async def raw_client(client_of: ClientOf) -> redis.asyncio.Redis:
    """A client of this worker's Valkey, flushed, that bypasses the ledger."""
    return client_of("valkey")
