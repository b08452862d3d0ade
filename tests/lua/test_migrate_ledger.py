"""migrate_ledger: rows of an older release become this one's, all of them or none.

There is no older release with other rows yet, so schema 0 is made here: its pods have no `stamp`,
its nodes have their first two fields the other way round.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger import schema
from autoscale_enforcer.ledger.outcomes import Lead, Permit, Reserve
from autoscale_enforcer.ledger.schema import CURRENT, Layout, Schema
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import NodeRow, PodRow
from tests.support.books import EPOCH, Books, pod, vm

NODE_FIELDS = tuple(field.name for field in fields(NodeRow))
POD_FIELDS = tuple(field.name for field in fields(PodRow))
OLD = Schema(Layout(("rv", "uid", *NODE_FIELDS[2:])), Layout(POD_FIELDS[:-1]))
NEW = Schema(CURRENT.nodes, Layout(POD_FIELDS, {"stamp": "7"}))


@pytest.fixture(autouse=True)
def older_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """This release comes from schema 0."""
    monkeypatch.setitem(schema.SCHEMAS, 0, OLD)
    monkeypatch.setitem(schema.SCHEMAS, 1, NEW)


async def age(books: Books) -> None:
    """The books as the older release would have them."""
    for kind, swap in (("nodes", True), ("pods", False)):
        key = books.keys.key(kind)
        for name, row in (await books.raw.hgetall(key)).items():
            first, second, *rest = row.decode().split(" ")
            old = [second, first, *rest] if swap else [first, second, *rest[:-1]]
            await books.raw.hset(key, name, " ".join(old))
    await books.raw.hset(books.keys.key("meta"), "schema", "0")


async def filled(books: Books) -> None:
    """A plain pod that is held and a VM that has told its permit."""
    await books.put_node("n1")
    await books.put_pod(pod("vm-1", node="n1", vm=vm(1000)))
    await books.request("vm-1", 2000)
    await books.reserve(pod("u1"))


async def rows(books: Books) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for kind in ("nodes", "pods"):
        found |= await books.raw.hgetall(books.keys.key(kind))
    return found


async def test_migrate_ledger_rewrites_every_row_and_keeps_what_is_held(books: Books) -> None:
    await filled(books)
    before = await rows(books)
    await age(books)

    answer = await books.ledger.migrate(0)

    guard = await books.ledger.look()
    renamed = {
        key: row.replace(EPOCH.encode(), guard.epoch.encode()) for key, row in before.items()
    }
    stamped = {
        key: row.rpartition(b" ")[0] + b" 7" if key != b"n1" else row
        for key, row in renamed.items()
    }
    assert (answer, guard.state) == (Lead.MIGRATED, "SETTLED")
    assert guard.epoch != EPOCH
    assert await rows(books) == stamped


async def test_migrate_ledger_forgets_nobody_who_was_heard(books: Books) -> None:
    """Else each node would wait for its agents, and every lastPermit would count once more."""
    await filled(books)
    await books.settles_at(60)
    await age(books)

    await books.ledger.migrate(0)

    assert (await books.reserve(pod("u2"), stamp=20)).outcome is Reserve.HELD
    answer = await books.request("vm-1", 2500, last=(2500, 100), stamp=21)
    assert (answer.outcome, answer.amount) == (Permit.PERMIT, Resources(2000, 100))


async def test_migrate_ledger_is_told_in_the_journal(books: Books) -> None:
    await filled(books)
    await age(books)

    await books.ledger.migrate(0)

    _, entry = (await books.raw.xrevrange(books.keys.key("journal"), count=1))[0]
    assert (entry[b"what"], entry[b"before"], entry[b"after"]) == (b"migrate", b"0", b"1")


async def test_migrate_ledger_twice_is_nothing(books: Books) -> None:
    await filled(books)
    await age(books)
    await books.ledger.migrate(0)
    before = await books.dump()

    assert await books.ledger.migrate(0) is Lead.NOTHING
    assert await books.dump() == before


async def test_migrate_ledger_of_no_books_is_nothing(unbuilt: Books) -> None:
    assert await unbuilt.ledger.migrate(0) is Lead.NOTHING
    assert await unbuilt.dump() == {}


async def test_migrate_ledger_gives_up_books_with_a_row_of_neither_release(books: Books) -> None:
    """The leader builds them anew; nothing is half migrated."""
    await filled(books)
    await age(books)
    await books.raw.hset(books.keys.key("pods"), "u1", "no row")
    before = await rows(books)

    answer = await books.ledger.migrate(0)

    assert (answer, (await books.ledger.look()).state) == (Lead.GIVEN_UP, "UNBUILT")
    assert await rows(books) == before
    building = await books.ledger.begin_build(books.leader)
    assert building is not None
    assert await books.ledger.publish_build(building) is Lead.PUBLISHED


async def test_migrate_ledger_shuts_out_what_an_older_release_had_sent(books: Books) -> None:
    """Its script would find rows with a field too many, or read one field for another."""
    await filled(books)
    await age(books)
    await books.ledger.migrate(0)
    before = await books.dump()

    given: dict[str, Any] = {"epoch": EPOCH, "uid": "u1", "node": "n1", "stamp": 99}
    answer = await books.run("unreserve_pod", **given, most=9, context=b"")

    assert answer == ["EPOCH"]
    assert await books.dump() == before


async def test_migrate_ledger_knows_no_release_so_old(books: Books) -> None:
    with pytest.raises(LedgerUnavailable, match="too old for this one"):
        await books.ledger.migrate(-1)


async def test_check_ledger_answers_older_until_it_is_migrated(books: Books) -> None:
    await filled(books)
    await age(books)
    before = await books.dump()

    guard = await books.ledger.look()
    with pytest.raises(LedgerUnavailable, match="by an older release"):
        await books.reserve(pod("u2"))

    assert (guard.state, guard.version) == ("OLDER", 0)
    assert await books.dump() == before
    await books.ledger.migrate(0)
    assert (await books.reserve(pod("u2"))).outcome is Reserve.HELD


async def test_check_ledger_answers_newer_and_nothing_is_written(books: Books) -> None:
    """Not by what needs no books either: lease, build, config and freeze."""
    await filled(books)
    await books.raw.hset(books.keys.key("meta"), mapping={"schema": "2", "epoch": "theirs"})
    before = await books.dump()
    ledger = books.ledger

    for call in (
        books.reserve(pod("u2")),
        books.request("vm-1", 3000),
        books.put_node("n2"),
        ledger.begin_build(books.leader),
        ledger.publish_build(books.leader),
        ledger.put_config(version="1", text=b"x"),
        ledger.claim("cluster"),
        ledger.freeze_grants(None, context={}),
        ledger.mirror.refresh(),
        ledger.drop_lease(token="token1"),
    ):
        with pytest.raises(LedgerUnavailable, match="by a newer release: its schema is 2"):
            await call

    assert (await ledger.look()).state == "NEWER"
    assert await books.dump() == before
    await books.raw.hset(books.keys.key("meta"), "schema", "1")


async def test_check_ledger_takes_a_ledger_back_once_it_is_no_newer(books: Books) -> None:
    await filled(books)
    await books.raw.hset(books.keys.key("meta"), "schema", "2")
    assert (await books.ledger.look()).state == "NEWER"

    await books.raw.hset(books.keys.key("meta"), "schema", "1")

    assert (await books.reserve(pod("u2"))).outcome is Reserve.HELD
