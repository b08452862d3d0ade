from __future__ import annotations

import pytest

from autoscale_enforcer.ledger.outcomes import Release
from autoscale_enforcer.model.ids import PodUid
from tests.support.books import Books, lines, pod

WHY = {"who": "ann", "why": "stuck"}


async def release(books: Books, uid: str = "u1") -> Release:
    return await books.ledger.release_leftover(PodUid(uid), context=WHY)


async def test_release_leftover_frees_what_a_pod_that_is_gone_held(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1", labels={"app": "web"}))
    before = await books.dump()

    answer = await release(books)

    assert answer is Release.RELEASED
    assert await books.changes(before) == lines("""
        nodes n1 sums=0/0 pods=0 version=3
        pods u1 gone
        names default/u1 gone
        facts u1 gone
        changes n1 3
        gone u1 now
        meta pods 0
        meta version 3
        journal release u1 n1->- bound 1000 100 1000 100 1000 100 0 0|
          {'who': 'ann', 'why': 'stuck'}
    """)


@pytest.mark.parametrize("to", ["held", "binding"])
async def test_release_leftover_frees_a_tentative_hold(books: Books, to: str) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"), to="binding" if to == "binding" else "held")

    answer = await release(books)

    assert answer is Release.RELEASED
    assert await books.reserved() == (0, 0)


async def test_release_leftover_twice_is_nothing(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1"))
    await release(books)
    before = await books.dump()

    assert await release(books) is Release.NOTHING
    assert await books.dump() == before


async def test_release_leftover_keeps_the_name_for_its_newer_pod(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u2", name="web", rv="9", node="n1"))

    answer = await release(books, "u1")

    assert answer is Release.NOTHING
    assert await books.raw.hget(books.keys.key("names"), "default/web") == b"u2"
