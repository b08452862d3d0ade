"""`verify` names what was planted: at least one corruption for each invariant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio

from autoscale_enforcer.ledger.reading import find_breaches
from tests.conftest import ClientOf
from tests.support.books import Books, pod

Plant = Callable[[redis.asyncio.Redis, Books], Awaitable[Any]]


async def edit(client: redis.asyncio.Redis, key: str, field: str, old: str, new: str) -> None:
    row = await client.hget(key, field)
    assert isinstance(row, bytes)
    assert old.encode() in row
    await client.hset(key, field, row.replace(old.encode(), new.encode()))


async def wrong_sum(client: redis.asyncio.Redis, books: Books) -> None:
    await edit(client, books.keys.key("nodes"), "n1", " 1000 ", " 1001 ")


async def held_without_deadline(client: redis.asyncio.Redis, books: Books) -> None:
    await client.zrem(books.keys.key("deadlines"), "u1")


async def lost_row(client: redis.asyncio.Redis, books: Books) -> None:
    # With its count, or the guard would say that nothing is built.
    await client.hdel(books.keys.key("pods"), "u1")
    await client.hincrby(books.keys.key("meta"), "pods", -1)


async def name_of_nobody(client: redis.asyncio.Redis, books: Books) -> None:
    await client.hset(books.keys.key("names"), "default/u1", "u9")


async def two_pods_of_a_name(client: redis.asyncio.Redis, books: Books) -> None:
    row = await client.hget(books.keys.key("pods"), "u1") or b""
    await client.hset(books.keys.key("pods"), "u9", row)
    await client.hincrby(books.keys.key("meta"), "pods", 1)


async def node_of_nobody(client: redis.asyncio.Redis, books: Books) -> None:
    await edit(client, books.keys.key("pods"), "u1", " n1 ", " n9 ")


async def grant_over_capacity(client: redis.asyncio.Redis, books: Books) -> None:
    state = "held 1000 100 1000 100 1000 100 0 0"
    entry = {"what": "reserve", "uid": "u1", "name": "default/u1", "from": "-", "node": "n1"}
    entry |= {"before": state, "after": state, "room": "9000 100 4000 800", "context": ""}
    await client.xadd(books.keys.key("journal"), entry)  # type: ignore[arg-type]


async def version_from_the_future(client: redis.asyncio.Redis, books: Books) -> None:
    await client.zadd(books.keys.key("changes"), {"n1": 99})


async def row_changed_by_no_script(client: redis.asyncio.Redis, books: Books) -> None:
    await edit(client, books.keys.key("pods"), "u1", " 1000 100 1000 100 ", " 900 100 900 100 ")
    await edit(client, books.keys.key("nodes"), "n1", " 1000 100 1000 100 ", " 900 100 900 100 ")


async def no_row_at_all(client: redis.asyncio.Redis, books: Books) -> None:
    await client.hset(books.keys.key("pods"), "u1", "nonsense")


PLANTED: list[tuple[int, Plant, str]] = [
    (1, wrong_sum, "n1"),
    (1, held_without_deadline, "u1"),
    (1, no_row_at_all, "u1"),
    (2, lost_row, "default/u1"),
    (2, name_of_nobody, "u1"),
    (2, two_pods_of_a_name, "u9"),
    (2, node_of_nobody, "u1"),
    (3, grant_over_capacity, "n1"),
    (4, version_from_the_future, "n1"),
    (5, row_changed_by_no_script, "u1"),
]


@pytest.fixture
async def client(client_of: ClientOf) -> redis.asyncio.Redis:
    return client_of("valkey")


@pytest.mark.parametrize(
    ("invariant", "plant", "subject"), PLANTED, ids=[plant.__name__ for _, plant, _ in PLANTED]
)
async def test_verify_names_what_was_planted(
    client: redis.asyncio.Redis, invariant: int, plant: Plant, subject: str
) -> None:
    books = Books(client, "valkey")
    await books.open()
    await books.put_node("n1")
    await books.reserve(pod("u1"))
    clean = await find_breaches(books.ledger)

    await plant(client, books)
    found = await find_breaches(books.ledger)
    await books.ledger.close()

    assert clean == []
    assert (invariant, subject) in {(breach.invariant, breach.subject) for breach in found}
