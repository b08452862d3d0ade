"""begin_build, load_row and publish_build: the books are replaced in one step or not at all."""

from __future__ import annotations

from datetime import timedelta

import pytest

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.outcomes import Fact, Lead
from autoscale_enforcer.model.rows import NodeRow, PodRow
from tests.support.books import TOKEN, Books, lines, pod

HOUR = timedelta(hours=1)


async def overtake(books: Books) -> Leadership:
    """Another replica leads from now on."""
    await books.ledger.drop_lease(token=TOKEN)
    await books.ledger.take_lease(holder="them", token="token2", lifetime=HOUR)
    return Leadership("token2")


async def test_begin_build_empties_the_keys_beside_the_books(books: Books) -> None:
    await books.put_node("n1")
    building = await books.ledger.begin_build(books.leader)
    await books.put_node("left-over", leader=building)
    before = await books.dump()

    answer = await books.run("begin_build", token=TOKEN, epoch="epoch9")

    assert answer == ["BUILDING"]
    assert await books.changes(before) == lines("""
        new_nodes left-over gone
        new_facts left-over gone
        new_changes left-over gone
        new_meta epoch epoch9
        new_meta nodes 0
        new_meta version 0
        new_journal gone
    """)


async def test_begin_build_is_for_the_leader_only(books: Books) -> None:
    await overtake(books)
    before = await books.dump()

    answer = await books.run("begin_build", token=TOKEN, epoch="epoch9")

    assert answer == ["FENCED"]
    assert await books.ledger.begin_build(books.leader) is None
    assert await books.dump() == before


async def test_publish_build_puts_what_was_built_in_the_place_of_the_books(books: Books) -> None:
    await books.put_node("old")
    await books.put_pod(pod("old", node="old"))
    building = await books.ledger.begin_build(books.leader)
    assert building is not None
    await books.put_node("n1", leader=building)
    await books.put_pod(pod("u1", node="n1"), leader=building)
    before = await books.dump()

    answer = await books.ledger.publish_build(building)

    changes = await books.changes(before)
    assert answer is Lead.PUBLISHED
    assert f"meta epoch {building.build_epoch}" in changes
    assert (await books.ledger.look()).epoch == building.build_epoch
    assert not [key for key in await books.dump() if ":new:" in key]
    assert await books.raw.hkeys(books.keys.key("nodes")) == [b"n1"]
    assert await books.raw.hkeys(books.keys.key("pods")) == [b"u1"]


async def test_publish_build_shows_nothing_before_it_is_done(books: Books) -> None:
    await books.put_node("n1")
    building = await books.ledger.begin_build(books.leader)
    before = {key: value for key, value in (await books.dump()).items() if ":new:" not in key}

    await books.put_node("n2", leader=building)
    await books.put_pod(pod("u2", node="n2"), leader=building)

    after = {key: value for key, value in (await books.dump()).items() if ":new:" not in key}
    assert after == before


async def test_publish_build_opens_a_ledger_that_had_no_books(unbuilt: Books) -> None:
    await unbuilt.ledger.take_lease(holder="us", token=TOKEN, lifetime=HOUR)
    building = await unbuilt.ledger.begin_build(unbuilt.leader)
    assert building is not None
    await unbuilt.put_node("n1", leader=building)
    with pytest.raises(LedgerUnavailable, match="not built"):
        await unbuilt.reserve(pod("u1"))

    await unbuilt.ledger.publish_build(building)

    assert (await unbuilt.reserve(pod("u1"))).outcome == "HELD"


async def test_publish_build_refuses_a_builder_that_was_overtaken(books: Books) -> None:
    building = await books.ledger.begin_build(books.leader)
    assert building is not None
    await books.put_node("n1", leader=building)
    await overtake(books)
    before = await books.dump()

    answer = await books.ledger.publish_build(building)

    assert answer is Lead.FENCED
    assert await books.dump() == before


async def test_publish_build_twice_publishes_once(books: Books) -> None:
    building = await books.ledger.begin_build(books.leader)
    assert building is not None
    await books.ledger.publish_build(building)
    before = await books.dump()

    answer = await books.ledger.publish_build(building)

    assert answer is Lead.FENCED
    assert await books.dump() == before


async def test_publish_build_refuses_facts_of_a_builder_that_was_overtaken(
    books: Books,
) -> None:
    """Its successor's build has another epoch, which a fact for the books would be told."""
    ours = await books.ledger.begin_build(books.leader)
    theirs = await books.ledger.begin_build(await overtake(books))
    await books.put_node("n1", leader=theirs)
    before = await books.dump()

    answers = [
        await books.put_node("n2", leader=ours),
        await books.put_pod(pod("u2", node="n2"), leader=ours),
        await books.delete_pod("u2", leader=ours),
        await books.delete_node("n1", leader=ours),
    ]

    assert answers == [Fact.FENCED] * 4
    assert await books.dump() == before


async def test_publish_build_may_leave_the_books_suspect(books: Books) -> None:
    building = await books.ledger.begin_build(books.leader)

    await books.ledger.publish_build(building or books.leader, suspect=True)

    assert (await books.ledger.look()).state == "SUSPECT"


async def test_load_row_puts_exported_rows_beside_the_books(books: Books) -> None:
    building = await books.ledger.begin_build(books.leader)
    assert building is not None
    node = NodeRow(uid="x", cap_cpu=4000, cap_mem=800, version=7)
    before = await books.dump()

    answer = await books.ledger.load_row("node", "n1", node.encode(), b"blob", leader=building)

    assert answer is Lead.LOADED
    assert await books.changes(before) == lines("""
        new_nodes n1 uid=x cap=4000/800 version=7
        new_facts n1 blob
        new_changes n1 7
        new_meta nodes 1
        new_meta version 7
    """)


async def test_load_row_puts_what_follows_from_a_pods_row_beside_it(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"))
    row = await books.pod("u1")
    building = await books.ledger.begin_build(books.leader)
    assert building is not None
    assert row is not None
    before = await books.dump()

    answers = [
        await books.ledger.load_row("pod", "u1", row.encode(), b"", leader=building)
        for _ in range(2)
    ]

    assert answers == [Lead.LOADED, Lead.LOADED]
    assert await books.changes(before) == lines("""
        new_pods u1 name=default/u1 node=n1 stage=held rv=1 holds=1000/100 deadline=now
          stamp=10
        new_names default/u1 u1
        new_deadlines u1 now
        new_meta pods 1
    """)


async def test_load_row_takes_no_moment_that_is_still_to_come(books: Books) -> None:
    """The file came from a server whose clock is ahead: every later call would have been late."""
    ahead = 10**16
    row = PodRow(name="default/u1", node="n1", stage="held", deadline=ahead // 1000, stamp=ahead)
    building = await books.ledger.begin_build(books.leader)
    assert building is not None
    await books.put_node("n1", leader=building)
    await books.ledger.load_row("pod", "u1", row.encode(), b"", leader=building)
    await books.ledger.load_row("node", "n1", NodeRow(pods=1).encode(), b"", leader=building)

    await books.ledger.publish_build(building, suspect=True)

    lapsed = await books.ledger.find_lapsed(limit=9)
    assert [uid for uid, _ in lapsed.pods] == ["u1"]
    assert await books.unreserve("u1", stamp=lapsed.stamp) == "RELEASED"


async def test_load_row_refuses_a_builder_that_was_overtaken(books: Books) -> None:
    ours = await books.ledger.begin_build(books.leader)
    assert ours is not None
    await books.ledger.begin_build(await overtake(books))
    before = await books.dump()

    answer = await books.ledger.load_row("node", "n1", NodeRow().encode(), b"", leader=ours)

    assert answer is Lead.FENCED
    assert await books.dump() == before
