from __future__ import annotations

from datetime import timedelta

import pytest

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.calls import Leadership
from tests.support.books import Books, pod


async def lost_ms(books: Books) -> int:
    return int(await books.raw.hget(books.keys.key("meta"), "lost_ms") or 0)


async def test_lose_books_has_no_replica_believe_them(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"), stamp=5)
    other = books.another()

    lost_for = await books.ledger.lose_books(books.leader, why="restored")

    assert lost_for is not None
    assert lost_for < timedelta(seconds=5)
    assert abs(await lost_ms(books) - await books.ledger.stamp() // 1000) < 5000
    assert (await other.look()).state == "UNBUILT"
    with pytest.raises(LedgerUnavailable):
        await other.read_pod(uid=pod("u1").uid)
    await other.close()
    [(_, last)] = await books.raw.xrevrange(books.keys.key("journal"), count=1)
    assert (last[b"what"], last[b"before"], b"restored" in last[b"context"]) == (
        b"lost",
        b"epoch1",
        True,
    )


async def test_lose_books_again_tells_since_when(books: Books) -> None:
    await books.ledger.lose_books(books.leader, why="a")
    since = await lost_ms(books) - 60_000
    await books.raw.hset(books.keys.key("meta"), "lost_ms", str(since))
    entries = await books.raw.xlen(books.keys.key("journal"))

    answer = await books.run("lose_books", token=books.leader.token, most=9, context=b"")
    lost_for = await books.ledger.lose_books(books.leader, why="b")

    assert answer == ["LOST", since]
    assert lost_for is not None
    assert timedelta(seconds=60) <= lost_for < timedelta(seconds=90)
    assert await lost_ms(books) == since
    assert await books.raw.xlen(books.keys.key("journal")) == entries


async def test_lose_books_marks_a_server_that_has_none(unbuilt: Books) -> None:
    await unbuilt.ledger.take_lease(
        holder="us", token=unbuilt.leader.token, lifetime=timedelta(hours=1)
    )

    await unbuilt.ledger.lose_books(unbuilt.leader, why="none")

    assert await lost_ms(unbuilt) > 0
    assert not await unbuilt.raw.exists(unbuilt.keys.key("journal"))


async def test_lose_books_is_the_leaders(books: Books) -> None:
    before = await books.dump()

    assert await books.ledger.lose_books(Leadership("stale"), why="a") is None

    assert await books.changes(before) == ""


async def test_new_books_are_not_lost(books: Books) -> None:
    await books.ledger.lose_books(books.leader, why="a")
    building = await books.ledger.begin_build(books.leader)
    assert building is not None
    await books.ledger.publish_build(building)

    assert await lost_ms(books) == 0
    assert (await books.ledger.look()).state == "SETTLED"
