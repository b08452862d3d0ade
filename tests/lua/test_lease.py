"""take_lease, drop_lease and settle_ledger: one replica leads, and its facts carry its token."""

from __future__ import annotations

from datetime import timedelta

import pytest

from autoscale_enforcer.ledger.outcomes import Lead
from tests.support.books import TOKEN, Books, lines

MINUTE = timedelta(minutes=1)
TOKEN_2 = "token2"


async def test_take_lease_leads_where_nobody_does(unbuilt: Books) -> None:
    answer = await unbuilt.ledger.take_lease(holder="us", token=TOKEN, lifetime=MINUTE)

    assert answer == (Lead.LEADER, "us")
    assert await unbuilt.changes({}) == lines("""
        meta fence token1
        lease holder us
        lease token token1
    """)
    assert 0 < await unbuilt.raw.pttl(unbuilt.keys.key("lease")) <= 60_000


async def test_take_lease_again_renews(unbuilt: Books) -> None:
    await unbuilt.ledger.take_lease(holder="us", token=TOKEN, lifetime=MINUTE)

    answer = await unbuilt.ledger.take_lease(holder="us", token=TOKEN, lifetime=2 * MINUTE)

    assert answer == (Lead.LEADER, "us")
    assert await unbuilt.raw.pttl(unbuilt.keys.key("lease")) > 60_000


async def test_take_lease_tells_who_leads(unbuilt: Books) -> None:
    await unbuilt.ledger.take_lease(holder="us", token=TOKEN, lifetime=MINUTE)
    before = await unbuilt.dump()

    answer = await unbuilt.ledger.take_lease(holder="them", token=TOKEN_2, lifetime=MINUTE)

    assert answer == (Lead.HELD, "us")
    assert await unbuilt.dump() == before


async def test_take_lease_after_it_ran_out_fences_the_one_before(books: Books) -> None:
    await books.raw.delete(books.keys.key("lease"))

    await books.ledger.take_lease(holder="them", token=TOKEN_2, lifetime=MINUTE)

    assert await books.put_node("n1") == "FENCED"


async def test_drop_lease_lets_another_lead_at_once(books: Books) -> None:
    before = await books.dump()

    dropped = await books.ledger.drop_lease(token=TOKEN)

    assert dropped is Lead.DROPPED
    assert await books.changes(before) == "lease holder gone\nlease token gone"


async def test_drop_lease_leaves_the_lease_of_another(books: Books) -> None:
    before = await books.dump()

    answer = await books.ledger.drop_lease(token=TOKEN_2)

    assert answer is Lead.NOTHING
    assert await books.dump() == before


async def test_settle_ledger_lets_grants_go_on(books: Books) -> None:
    await books.new_epoch("epoch2", state="suspect")
    before = await books.dump()

    answer = await books.ledger.settle_ledger(books.leader)

    changes = await books.changes(before)
    assert answer is Lead.SETTLED
    assert "meta state settled" in changes
    assert "journal settle - -->- suspect|settled" in changes


async def test_settle_ledger_of_settled_books_does_nothing(books: Books) -> None:
    before = await books.dump()

    answer = await books.ledger.settle_ledger(books.leader)

    assert answer is Lead.NOTHING
    assert await books.dump() == before


@pytest.mark.parametrize("words", [("FENCED", "epoch1", TOKEN_2), ("EPOCH", "other", TOKEN)])
async def test_settle_ledger_leaves_what_was_not_compared(
    books: Books, words: tuple[str, str, str]
) -> None:
    word, epoch, token = words
    await books.new_epoch("epoch1", state="suspect")
    before = await books.dump()

    answer = await books.run("settle_ledger", epoch=epoch, token=token, settle_after_ms=0, most=9)

    assert answer == [word]
    assert await books.dump() == before
