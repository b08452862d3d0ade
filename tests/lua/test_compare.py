"""ask_compare, note_compared, read_compare: a compare is asked for anywhere, the leader answers."""

from __future__ import annotations

from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.outcomes import Compare, Lead
from tests.support.books import Books

WHY = {"who": "ann", "why": "looks odd"}


async def test_read_compare_answers_compare_before_anybody_asked(books: Books) -> None:
    assert await books.run("read_compare") == ["COMPARE", b"0", b"0", b"", b"0"]


async def test_ask_compare_is_asked_until_it_is_answered(books: Books) -> None:
    before = await books.dump()

    asked = await books.ledger.ask_compare(context=WHY)
    waiting = await books.ledger.read_compare()
    changes = await books.changes(before)
    noted = await books.ledger.note_compared(books.leader, asked=asked, replica="r1", mended=3)

    assert asked > 0
    assert (await books.run("ask_compare", most=9, context=b""))[0] == "ASKED"
    assert waiting == Compare(asked, 0, "", 0)
    assert changes.splitlines() == [
        "journal reconcile - -->* | {'who': 'ann', 'why': 'looks odd'}",
        f"compare asked {asked}",
    ]
    assert noted is Lead.COMPARED
    assert (await books.ledger.read_compare()).done == asked


async def test_note_compared_is_fenced_for_a_leader_that_was_overtaken(books: Books) -> None:
    asked = await books.ledger.ask_compare(context=WHY)
    before = await books.dump()

    answer = await books.ledger.note_compared(
        Leadership("stale"), asked=asked, replica="r0", mended=0
    )

    assert answer is Lead.FENCED
    assert await books.dump() == before
