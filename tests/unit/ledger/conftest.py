"""A ledger before a proxy, on this worker's Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from autoscale_enforcer.ledger.ledger import Ledger
from tests.conftest import ClientOf
from tests.support.books import Books, settings_at
from tests.support.proxy import Proxy
from tests.support.servers import Server


@pytest.fixture
async def proxy(valkey_server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(valkey_server) as proxy:
        yield proxy


@pytest.fixture
async def books(client_of: ClientOf, proxy: Proxy) -> AsyncIterator[Books]:
    """Books with node n1, brought into a state without the proxy."""
    books = Books(client_of("valkey"), "valkey")
    await books.open()
    await books.put_node("n1", 100_000, 100_000)
    yield books
    await books.ledger.close()


@pytest.fixture
async def ledger(books: Books, proxy: Proxy) -> AsyncIterator[Ledger]:
    """The ledger under test: every byte goes through the proxy; it has connected once."""
    ledger = Ledger.open(settings_at(proxy.url))
    await ledger.look()
    proxy.commands.clear()
    yield ledger
    await ledger.close()
