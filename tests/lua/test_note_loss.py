from __future__ import annotations

from autoscale_enforcer.ledger.told import Loss, Told
from tests.support.books import EPOCH, Books


async def test_note_loss_tells_the_journal(books: Books) -> None:
    before = await books.dump()

    books.ledger.note_loss(Told("an-id", 7), Loss.DROPPED)
    await books.ledger.look()  # sent after it

    assert await books.changes(before) == f"journal dropped - -->- an-id 7|{EPOCH}"


async def test_note_loss_needs_no_books(unbuilt: Books) -> None:
    word, *_ = await unbuilt.run("note_loss", loss="unclear", told="an-id 7", most=9)

    assert word == "NOTED"
    assert list(await unbuilt.dump()) == [unbuilt.keys.key("journal")]
