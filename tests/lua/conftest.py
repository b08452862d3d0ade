"""The books of the Lua tests: each test runs on every kind of server, with the same expectation."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from autoscale_enforcer.ledger.reading import find_breaches
from tests.conftest import ClientOf
from tests.support.books import Books, Flavour
from tests.support.servers import AnyKind

FLAVOURS = [
    "valkey",
    "prelude",
    "fakeredis",
    pytest.param("redis", marks=pytest.mark.long),
]


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    found: Flavour = request.param
    return found


@pytest.fixture
async def unbuilt(client_of: ClientOf, flavour: Flavour) -> AsyncIterator[Books]:
    """A ledger on an empty server."""
    kind: AnyKind = "valkey" if flavour == "prelude" else flavour
    books = Books(client_of(kind), flavour)
    yield books
    await books.ledger.close()


@pytest.fixture
async def books(unbuilt: Books) -> AsyncIterator[Books]:
    """Empty books, built and settled, in epoch `epoch1`; what a test leaves must add up."""
    await unbuilt.open()
    yield unbuilt
    if (await unbuilt.ledger.look()).state != "UNBUILT":
        assert await find_breaches(unbuilt.ledger) == []
    assert (await unbuilt.dump()).keys() <= set(unbuilt.keys.all())
