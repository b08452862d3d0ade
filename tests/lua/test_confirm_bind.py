from __future__ import annotations

import pytest

from autoscale_enforcer.ledger.outcomes import Confirm
from tests.support.books import Books, lines, pod, vm


async def test_confirm_bind_books_a_binding_pod_as_bound(books: Books) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1"), stamp=10)
    before = await books.dump()

    answer = await books.confirm("u1")

    assert answer is Confirm.BOUND
    assert await books.changes(before) == lines("""
        pods u1 stage=bound deadline=0
        deadlines u1 gone
        journal confirm u1 n1->n1 binding 1000 100 1000 100 1000 100 0 0|bound 1000 100 1000 100
          1000 100 0 0 @ 1000 100 4000 800
    """)


async def test_confirm_bind_books_a_pod_that_nobody_knew(books: Books) -> None:
    await books.put_node("n1", 500, 50)
    before = await books.dump()

    answer = await books.confirm(pod("u1"))

    assert answer is Confirm.BOUND
    assert await books.changes(before) == lines("""
        nodes n1 sums=1000/100 pods=1 version=2
        pods u1 name=default/u1 node=n1 stage=bound rv=1 holds=1000/100
        names default/u1 u1
        changes n1 2
        meta pods 1
        meta version 2
        journal confirm u1 -->n1 |bound 1000 100 1000 100 1000 100 0 0 @ 1000 100 500 50
    """)


@pytest.mark.parametrize("said", [False, True], ids=["known", "said"])
@pytest.mark.parametrize("stage", ["pending", "held", "binding"])
async def test_confirm_bind_is_a_fact_from_any_stage(books: Books, stage: str, said: bool) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1"))
    if stage != "pending":
        await books.reserve("u1", to="binding" if stage == "binding" else "held")

    answer = await books.confirm(pod("u1") if said else "u1")

    row = await books.pod("u1")
    assert answer is Confirm.BOUND
    assert row is not None
    assert (row.stage, row.node, row.deadline) == ("bound", "n1", 0)
    assert await books.reserved() == (1000, 100)


async def test_confirm_bind_goes_by_the_newer_version_of_a_pending_pod(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", rv="10", cpu=2000))

    await books.confirm(pod("u1", rv="9", cpu=500))

    assert await books.reserved() == (2000, 100)


async def test_confirm_bind_moves_a_hold_to_where_the_pod_is(books: Books) -> None:
    await books.put_node("n1")
    await books.put_node("n2")
    await books.begin_bind(pod("u1"), "n1")

    answer = await books.confirm("u1", "n2")

    assert answer is Confirm.BOUND
    assert await books.reserved("n1") == (0, 0)
    assert await books.reserved("n2") == (1000, 100)


async def test_confirm_bind_makes_an_absent_row_for_an_unknown_node(books: Books) -> None:
    answer = await books.confirm(pod("u1"), "n9")

    assert answer is Confirm.BOUND
    assert (await books.node("n9")).absent == 1


async def test_confirm_bind_again_changes_nothing(books: Books) -> None:
    """A permit that has grown since stands, whatever the pod says."""
    await books.put_node("n1")
    await books.begin_bind(pod("v1", vm=vm(1000, 100)))
    await books.confirm("v1")
    await books.request("v1", 2000, 200, stamp=20)
    before = await books.dump()

    answer = await books.confirm(pod("v1", rv="9", vm=vm(1000, 100)))

    assert answer is Confirm.BOUND
    assert await books.dump() == before


async def test_confirm_bind_is_taken_on_suspect_books(books: Books) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1"))
    await books.new_epoch(state="suspect")

    answer = await books.confirm("u1")

    assert answer is Confirm.BOUND


async def test_confirm_bind_takes_a_newer_pod_of_a_name_for_the_end_of_the_older(
    books: Books,
) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("old", name="web", rv="1", node="n1"))

    answer = await books.confirm(pod("new", name="web", rv="2", cpu=500))

    assert answer is Confirm.BOUND
    assert await books.reserved() == (500, 100)
    assert await books.pod("old") is None


@pytest.mark.parametrize("end", ["deleted", "finished"])
async def test_confirm_bind_books_nothing_for_a_pod_that_is_gone(books: Books, end: str) -> None:
    await books.put_node("n1")
    await books.begin_bind(pod("u1"))
    if end == "deleted":
        await books.delete_pod("u1")
    else:
        await books.put_pod(pod("u1", rv="2", node="n1", finished=True))
    before = await books.dump()

    answer = await books.confirm(pod("u1"))

    assert answer is Confirm.GONE
    assert await books.dump() == before


async def test_confirm_bind_books_nothing_for_a_pod_older_than_that_of_its_name(
    books: Books,
) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("new", name="web", rv="10"))
    before = await books.dump()

    answer = await books.confirm(pod("old", name="web", rv="9"))

    assert answer is Confirm.GONE
    assert await books.dump() == before


async def test_confirm_bind_cannot_book_what_nobody_described(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.confirm("u1")

    assert answer is Confirm.UNKNOWN
    assert await books.dump() == before
