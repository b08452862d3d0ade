from __future__ import annotations

from autoscale_enforcer.ledger.outcomes import Fact
from tests.support.books import Books, lines, pod


async def test_delete_pod_frees_what_it_held(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1", labels={"app": "web"}))
    before = await books.dump()

    answer = await books.delete_pod("u1")

    assert answer is Fact.DELETED
    assert await books.changes(before) == lines("""
        nodes n1 sums=0/0 pods=0 version=3
        pods u1 gone
        names default/u1 gone
        facts u1 gone
        changes n1 3
        gone u1 now
        meta pods 0
        meta version 3
        journal delete_pod u1 n1->- bound 1000 100 1000 100 1000 100 0 0|
    """)


async def test_delete_pod_ends_a_tentative_hold_with_its_deadline(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"))
    before = await books.dump()

    answer = await books.delete_pod("u1")

    assert answer is Fact.DELETED
    assert "deadlines u1 gone" in await books.changes(before)


async def test_delete_pod_again_changes_nothing_more(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1"))
    await books.delete_pod("u1")
    before = await books.dump()

    answer = await books.delete_pod("u1")

    assert answer is Fact.NOTHING
    assert await books.changes(before) == ""


async def test_delete_pod_remembers_a_pod_that_nobody_knew(books: Books) -> None:
    before = await books.dump()

    answer = await books.delete_pod("u1")

    assert answer is Fact.NOTHING
    assert await books.changes(before) == "gone u1 now"


async def test_delete_pod_leaves_the_name_to_a_newer_pod(books: Books) -> None:
    await books.put_pod(pod("old", name="web", rv="1"))
    await books.put_pod(pod("new", name="web", rv="2"))
    before = await books.dump()

    answer = await books.delete_pod("old", name="web")

    assert answer is Fact.NOTHING
    assert await books.changes(before) == ""


async def test_delete_pod_lets_an_absent_node_go_with_its_last_pod(books: Books) -> None:
    await books.put_pod(pod("u1", node="n1", labels={"app": "web"}))
    before = await books.dump()

    await books.delete_pod("u1")

    assert await books.changes(before) == lines("""
        nodes n1 gone
        pods u1 gone
        names default/u1 gone
        facts u1 gone
        changes n1 2
        gone u1 now
        meta nodes 0
        meta pods 0
        meta version 2
        journal delete_pod u1 n1->- bound 1000 100 1000 100 1000 100 0 0|
    """)


async def test_delete_pod_forgets_deletions_after_ten_minutes(books: Books) -> None:
    await books.delete_pod("old")
    await books.delete_pod("recent")
    gone = books.keys.key("gone")
    await books.raw.zincrby(gone, -10 * 60 * 1000, "old")
    await books.raw.zincrby(gone, -9 * 60 * 1000, "recent")

    await books.delete_pod("new")

    assert set(await books.raw.zrange(gone, 0, -1)) == {b"recent", b"new"}
