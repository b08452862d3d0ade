from __future__ import annotations

from autoscale_enforcer.ledger.outcomes import Fact
from tests.support.books import Books, lines, pod


async def test_delete_node_takes_an_empty_node_away(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.delete_node("n1")

    assert answer is Fact.DELETED
    assert await books.changes(before) == lines("""
        nodes n1 gone
        facts n1 gone
        changes n1 2
        gone uid-n1 now
        meta nodes 0
        meta version 2
        journal delete_node n1 -->n1 0 4000 800|
    """)


async def test_delete_node_keeps_a_row_without_capacity_while_pods_are_on_it(
    books: Books,
) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1"))
    before = await books.dump()

    answer = await books.delete_node("n1")

    assert answer is Fact.ABSENT
    assert await books.changes(before) == lines("""
        nodes n1 uid=- absent=1 cap=0/0 version=3
        changes n1 3
        gone uid-n1 now
        meta version 3
        journal delete_node n1 -->n1 0 4000 800|1 0 0
    """)


async def test_delete_node_again_changes_nothing_more(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1"))
    await books.delete_node("n1")
    before = await books.dump()

    answer = await books.delete_node("n1")

    assert answer is Fact.NOTHING
    assert await books.changes(before) == ""


async def test_delete_node_leaves_a_newer_node_of_the_name(books: Books) -> None:
    await books.put_node("n1", uid="second")
    before = await books.dump()

    answer = await books.delete_node("n1", uid="first")

    assert answer is Fact.NOTHING
    assert await books.changes(before) == "gone first now"


async def test_delete_node_without_uid_does_not_bar_every_node_without_one(
    books: Books,
) -> None:
    """'-' stood in the list of what is gone, and no node without a UID was booked again."""
    await books.put_node("n1", uid="-")
    await books.delete_node("n1", uid="-")

    answer = await books.put_node("n2", uid="-")

    assert answer is Fact.BOOKED
