from __future__ import annotations

from autoscale_enforcer.ledger.outcomes import Release
from tests.support.books import Books, lines, pod


async def test_abandon_bind_frees_the_room(books: Books) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1"), stamp=10)
    before = await books.dump()

    answer = await books.abandon("u1", stamp=10)

    assert answer is Release.RELEASED
    assert await books.changes(before) == lines("""
        nodes n1 sums=0/0 pods=0 version=3
        pods u1 node=- stage=pending deadline=0
        changes n1 3
        deadlines u1 gone
        meta version 3
        journal abandon u1 n1->- binding 1000 100 1000 100 1000 100 0 0|pending 1000 100 1000 100
          1000 100 0 0
    """)


async def test_abandon_bind_twice_frees_once(books: Books) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1"), stamp=10)
    await books.abandon("u1", stamp=10)
    before = await books.dump()

    answer = await books.abandon("u1", stamp=10)

    assert answer is Release.NOTHING
    assert await books.dump() == before


async def test_abandon_bind_leaves_a_bind_that_was_taken_over(books: Books) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1"), stamp=10)
    await books.begin_bind(pod("u1"), stamp=20)
    before = await books.dump()

    answer = await books.abandon("u1", stamp=10)

    assert answer is Release.LATE
    assert await books.dump() == before


async def test_abandon_bind_leaves_what_is_only_held(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"), stamp=10)
    before = await books.dump()

    answer = await books.abandon("u1", stamp=20)

    assert answer is Release.NOTHING
    assert await books.dump() == before


async def test_abandon_bind_leaves_a_bound_pod(books: Books) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1"), stamp=10)
    await books.confirm("u1")
    before = await books.dump()

    answer = await books.abandon("u1", stamp=10)

    assert answer is Release.NOTHING
    assert await books.dump() == before


async def test_abandon_bind_leaves_a_bind_on_another_node(books: Books) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1"), "n1", stamp=10)
    before = await books.dump()

    answer = await books.abandon("u1", "n2", stamp=10)

    assert answer is Release.NOTHING
    assert await books.dump() == before


async def test_abandon_bind_of_an_unknown_pod_does_nothing(books: Books) -> None:
    before = await books.dump()

    answer = await books.abandon("u1")

    assert answer is Release.NOTHING
    assert await books.dump() == before
