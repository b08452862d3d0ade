"""Each ledger call twice: lost before it was applied, and applied with its answer lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.reading import find_breaches
from tests.conftest import ClientOf
from tests.support.books import Books, pod, settings_at, vm
from tests.support.proxy import Proxy
from tests.support.servers import Server

Step = Callable[[Books], Awaitable[Any]]

STEPS: dict[str, Step] = {
    "reserve_pod": lambda books: books.reserve(pod("new"), stamp=20),
    "begin_bind": lambda books: books.begin_bind(pod("new"), stamp=20),
    "move": lambda books: books.reserve(pod("held"), "n2", stamp=20),
    "unreserve_pod": lambda books: books.unreserve("held", stamp=20),
    "confirm_bind": lambda books: books.confirm("binding"),
    "abandon_bind": lambda books: books.abandon("binding", stamp=10),
    "request_permit grows": lambda books: books.request("vm", 3000, 300, stamp=20),
    "request_permit shrinks": lambda books: books.request("vm", 1, 1, stamp=20),
    "put_pod": lambda books: books.put_pod(pod("binding", rv="2", node="n2")),
    "finish": lambda books: books.put_pod(pod("held", rv="2", node="n1", finished=True)),
    "delete_pod": lambda books: books.delete_pod("vm"),
    "put_node": lambda books: books.put_node("n1", 1, 1, rv="2"),
    "delete_node": lambda books: books.delete_node("n1"),
    "recount_node": lambda books: books.recount("n1", ["held", "binding", "vm"]),
}

NO_CHANGE_TWICE = {
    "unreserve_pod",
    "abandon_bind",
    "delete_pod",
    "finish",
    "put_node",
    "delete_node",
    "put_pod",
}
"""Where the second answer says that there was nothing left to do, which is the same to a caller."""


@pytest.fixture
async def proxy(valkey_server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(valkey_server) as proxy:
        yield proxy


@pytest.fixture
async def books(client_of: ClientOf, proxy: Proxy) -> AsyncIterator[Books]:
    """Two nodes, a pod in each stage, and a ledger behind the proxy that has connected once."""
    books = Books(client_of("valkey"), "valkey")
    await books.open()
    for name in ("n1", "n2"):
        await books.put_node(name, 10_000, 1000)
    await books.reserve(pod("held"), stamp=10)
    await books.begin_bind(pod("binding"), stamp=10)
    await books.put_pod(pod("vm", node="n1", vm=vm()))
    await books.ledger.close()
    books.ledger = Ledger.open(settings_at(proxy.url))
    await books.ledger.look()
    yield books
    assert await find_breaches(books.ledger) == []
    await books.ledger.close()


async def after_calm(books: Books, step: Step) -> tuple[Any, str]:
    """What the call answers and changes when nothing is lost; the books are put back."""
    before = await books.dump()
    kept = {key: await books.raw.dump(key) for key in before}
    answer = await step(books)
    changes = await books.changes(before)
    await books.raw.flushdb()
    for key, content in kept.items():
        await books.raw.restore(key, 0, content)
    return answer, changes


@pytest.mark.parametrize("lost", ["request", "reply"])
@pytest.mark.parametrize("name", STEPS)
async def test_call_lost_once_ends_as_if_nothing_had_happened(
    books: Books, proxy: Proxy, name: str, lost: str
) -> None:
    answer, changes = await after_calm(books, STEPS[name])
    before = await books.dump()
    if lost == "reply":
        proxy.lose_replies()
    else:
        proxy.refuse_requests()

    found = await STEPS[name](books)

    assert await books.changes(before) == changes
    assert found == answer or (lost == "reply" and name in NO_CHANGE_TWICE)


@pytest.mark.parametrize("name", STEPS)
async def test_call_lost_twice_is_asked_again_by_its_caller(
    books: Books, proxy: Proxy, name: str
) -> None:
    answer, changes = await after_calm(books, STEPS[name])
    before = await books.dump()
    proxy.lose_replies(2)
    with pytest.raises(LedgerUnavailable):
        await STEPS[name](books)

    found = await STEPS[name](books)

    assert await books.changes(before) == changes
    assert found == answer or name in NO_CHANGE_TWICE
