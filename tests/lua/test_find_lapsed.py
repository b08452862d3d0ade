from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

from tests.support.books import Books, pod


async def lapsed(books: Books, *, limit: int = 10) -> list[str]:
    answer = await books.run("find_lapsed", limit=limit)
    assert answer[0] == "LAPSED"
    return [uid.decode() for uid in answer[2::2]]


async def test_find_lapsed_names_holds_past_their_deadline_the_longest_first(
    books: Books,
) -> None:
    await books.put_node("n1")
    books.ledger.settings = replace(books.ledger.settings, hold_lifetime=timedelta(0))
    await books.reserve(pod("held", cpu=1))
    await books.begin_bind(pod("binding", cpu=1))
    await books.raw.zincrby(books.keys.key("deadlines"), -1000, "binding")
    before = await books.dump()

    found = await books.ledger.find_lapsed(limit=10)

    assert [uid for uid, _ in found.pods] == ["binding", "held"]
    assert [row.stage for _, row in found.pods] == ["binding", "held"]
    assert abs(found.stamp / 1e6 - time.time()) < 60
    assert await books.dump() == before
    await books.raw.zincrby(books.keys.key("deadlines"), 1000, "binding")


async def test_find_lapsed_leaves_out_what_is_not_due_or_bound(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"))
    await books.put_pod(pod("u2", node="n1"))

    assert await lapsed(books) == []


async def test_find_lapsed_names_no_more_than_its_limit(books: Books) -> None:
    await books.put_node("n1")
    books.ledger.settings = replace(books.ledger.settings, hold_lifetime=timedelta(0))
    for number in range(3):
        await books.reserve(pod(f"u{number}", cpu=1))

    assert len(await lapsed(books, limit=2)) == 2
