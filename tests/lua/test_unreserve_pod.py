from __future__ import annotations

import pytest

from autoscale_enforcer.ledger.outcomes import Release
from tests.support.books import Books, lines, pod


async def test_unreserve_pod_frees_the_room(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"), stamp=10)
    before = await books.dump()

    answer = await books.unreserve("u1", stamp=20)

    assert answer is Release.RELEASED
    assert await books.changes(before) == lines("""
        nodes n1 sums=0/0 pods=0 version=3
        pods u1 node=- stage=pending deadline=0 stamp=20
        changes n1 3
        deadlines u1 gone
        meta version 3
        journal unreserve u1 n1->- held 1000 100 1000 100 1000 100 0 0|pending 1000 100 1000 100
          1000 100 0 0
    """)


async def test_unreserve_pod_twice_frees_once(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"), stamp=10)
    await books.reserve(pod("u2"), stamp=10)
    await books.unreserve("u1", stamp=20)
    before = await books.dump()

    answer = await books.unreserve("u1", stamp=20)

    assert answer is Release.NOTHING
    assert await books.dump() == before


async def test_unreserve_pod_before_there_is_a_hold_does_nothing(books: Books) -> None:
    before = await books.dump()

    answer = await books.unreserve("u1")

    assert answer is Release.NOTHING
    assert await books.dump() == before


async def test_unreserve_pod_leaves_a_hold_that_was_reserved_again_since(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"), stamp=30)
    before = await books.dump()

    answer = await books.unreserve("u1", stamp=29)

    assert answer is Release.LATE
    assert await books.dump() == before


async def test_unreserve_pod_leaves_a_hold_on_another_node(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"), "n1", stamp=10)
    before = await books.dump()

    answer = await books.unreserve("u1", "n2", stamp=20)

    assert answer is Release.NOTHING
    assert await books.dump() == before


@pytest.mark.parametrize("confirmed", [False, True], ids=["binding", "bound"])
async def test_unreserve_pod_leaves_a_pod_that_is_binding_or_bound(
    books: Books, confirmed: bool
) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1"), stamp=10)
    if confirmed:
        await books.confirm("u1")
    before = await books.dump()

    answer = await books.unreserve("u1", stamp=20)

    assert answer is Release.NOTHING
    assert await books.dump() == before


async def test_unreserve_pod_lets_an_absent_node_go_with_its_last_pod(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"), stamp=10)
    await books.delete_node("n1")
    before = await books.dump()

    await books.unreserve("u1", stamp=20)

    assert await books.changes(before) == lines("""
        nodes n1 gone
        pods u1 node=- stage=pending deadline=0 stamp=20
        facts n1 gone
        changes n1 4
        deadlines u1 gone
        meta nodes 0
        meta version 4
        journal unreserve u1 n1->- held 1000 100 1000 100 1000 100 0 0|pending 1000 100 1000 100
          1000 100 0 0
    """)
