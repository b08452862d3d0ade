from __future__ import annotations

from typing import Any

import pytest

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.outcomes import Lead
from tests.support.books import EPOCH, Books, lines, pod

NEW = "epoch2"


async def check(books: Books, *, watch: int | None = None, mark: bool = False) -> list[Any]:
    """The guard as the pipeline runs it, without the pipeline's own before it."""
    script = books.scripts["check_ledger"]
    given: dict[str, str | int | bytes] = {
        "new_epoch": NEW,
        "watch": int(books.watches if watch is None else watch),
        "most": 9,
        "mark": int(mark),
        "schema": 1,
    }
    keys = books.keys.keys(script.key_names)
    answer = await books.raw.eval(script.text, len(keys), *keys, *script.arguments(given))
    return [answer[0].decode(), answer[2].decode(), *answer[3:5], answer[5].decode()]


async def test_check_ledger_knows_its_books(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await check(books)

    settle_ms, replid = await books.raw.hmget(books.keys.key("meta"), "settle_ms", "replid")
    assert answer == ["SETTLED", EPOCH, 1, int(settle_ms), replid.decode()]
    assert await books.dump() == before


async def test_check_ledger_leaves_a_mark_where_the_server_is_to_be_waited_for(
    books: Books,
) -> None:
    """Valkey's WAIT covers nothing after commands that wrote nothing."""
    before = await books.dump()

    for _ in range(2):
        await check(books, mark=True)

    assert await books.changes(before) == "meta marks 2"


async def test_check_ledger_finds_no_books_on_an_empty_server(unbuilt: Books) -> None:
    answer = await check(unbuilt)

    assert answer == ["UNBUILT", "", 0, 0, ""]
    assert await unbuilt.dump() == {}


async def test_check_ledger_begins_a_suspect_epoch_under_another_replication_id(
    books: Books,
) -> None:
    """A connection outlived its server's demotion and promotion, the last grant was gone."""
    await books.put_node("n1")
    replid = await books.raw.hget(books.keys.key("meta"), "replid")
    await books.raw.hset(books.keys.key("meta"), "replid", "another")
    before = await books.dump()

    answer = await check(books)

    found = (*answer[:3], await books.changes(before))
    noticed = lines(f"""
        meta epoch epoch2
        meta replid {replid.decode()}
        meta state suspect
        journal suspect - -->- epoch1|epoch2
    """)
    assert found == (
        ("SUSPECT", NEW, 1, noticed)
        if books.watches
        else ("SETTLED", EPOCH, 1, "")  # fakeredis has no INFO: the guard is told not to look
    )


async def test_check_ledger_does_not_look_where_it_is_told_not_to(books: Books) -> None:
    await books.raw.hset(books.keys.key("meta"), "replid", "another")

    answer = await check(books, watch=0)

    assert answer[:2] == ["SETTLED", EPOCH]
    await books.raw.hdel(books.keys.key("meta"), "epoch")


@pytest.mark.parametrize(("key", "field"), [("nodes", "n1"), ("pods", "u1")])
async def test_check_ledger_gives_up_books_that_lack_rows(
    books: Books, key: str, field: str
) -> None:
    """No key is not an empty node: what was evicted is noticed."""
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1"))
    await books.raw.hdel(books.keys.key(key), field)
    before = await books.dump()

    answer = await check(books)

    assert answer == ["UNBUILT", "", 0, 0, ""]
    assert await books.changes(before) == "meta epoch gone\njournal lost - -->- epoch1|"


async def test_check_ledger_closes_the_books_before_anything_behind_it_runs(
    books: Books,
) -> None:
    await books.put_node("n1")
    await books.raw.hdel(books.keys.key("nodes"), "n1")

    with pytest.raises(LedgerUnavailable, match="not built"):
        await books.reserve(pod("u1"))

    assert await books.pod("u1") is None


async def test_check_ledger_notices_that_everything_was_flushed(books: Books) -> None:
    await books.put_node("n1")
    await books.raw.flushall()

    with pytest.raises(LedgerUnavailable, match="not built"):
        await books.request("v1", 1)

    assert await books.dump() == {}


async def test_check_ledger_outlives_a_flush_of_the_scripts(books: Books) -> None:
    await books.put_node("n1")
    await books.raw.script_flush()

    answer = await books.reserve(pod("u1"))

    assert answer.outcome == "HELD"
    assert (await books.ledger.look()).epoch == EPOCH


async def test_check_ledger_stays_suspect_until_the_leader_has_compared(books: Books) -> None:
    await books.new_epoch(NEW, state="suspect")

    suspect = (await books.ledger.look()).state
    settled = await books.ledger.settle_ledger(books.leader)

    assert (suspect, settled) == ("SUSPECT", Lead.SETTLED)
    assert (await books.ledger.look()).state == "SETTLED"
