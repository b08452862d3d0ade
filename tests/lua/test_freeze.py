"""freeze_grants and thaw_grants: nothing is granted while an operator says so, all else goes on."""

from __future__ import annotations

from typing import Any

import pytest

from autoscale_enforcer.ledger.freezes import Freeze
from autoscale_enforcer.ledger.outcomes import Confirm, Lead, Order, Permit, Release, Reserve
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import Resources
from tests.support.books import Books, lines, pod, vm

WHY = {"who": "ann", "why": "node burns"}
N1 = NodeName("n1")


async def freeze(books: Books, node: str | None = None, **more: Any) -> Order:
    order, _ = await books.ledger.freeze_grants(
        NodeName(node) if node else None, context=WHY, **more
    )
    return order


async def thaw(books: Books, node: str | None = None, **more: Any) -> Order:
    order, _ = await books.ledger.thaw_grants(NodeName(node) if node else None, context=WHY, **more)
    return order


async def notes(books: Books) -> dict[str, tuple[str, str]]:
    found = await books.raw.hgetall(books.keys.key("freezes"))
    freezes = [Freeze.decode(*pair) for pair in found.items()]
    return {each.node: (each.who, each.why) for each in freezes}


async def test_freeze_grants_says_who_and_why(books: Books) -> None:
    await books.put_node("n1")
    before = await books.dump()

    answer = await freeze(books, "n1")

    assert answer is Order.FROZEN
    assert await notes(books) == {"n1": ("ann", "node burns")}
    assert await books.changes(before) == lines("""
        journal freeze - -->n1 | {'who': 'ann', 'why': 'node burns'}
        freezes n1 noted
    """)


async def test_freeze_grants_twice_keeps_the_first(books: Books) -> None:
    await freeze(books)
    before = await books.dump()

    order, found = await books.ledger.freeze_grants(None, context={"who": "bob", "why": "other"})

    assert (order, found and found.who, found and found.why) == (Order.ALREADY, "ann", "node burns")
    assert await books.dump() == before


async def test_freeze_grants_knows_no_such_node(books: Books) -> None:
    before = await books.dump()

    answer = await freeze(books, "n9")

    assert answer is Order.NO_NODE
    assert await books.dump() == before


@pytest.mark.parametrize("node", [None, "n1"])
async def test_freeze_grants_and_thaw_grants_write_nothing_when_dry(
    books: Books, node: str | None
) -> None:
    await books.put_node("n1")
    before = await books.dump()

    would_freeze = await freeze(books, node, dry_run=True)
    unchanged = await books.dump() == before
    await freeze(books, node)
    frozen = await books.dump()
    would_thaw = await thaw(books, node, dry_run=True)

    assert (would_freeze, would_thaw) == (Order.FROZEN, Order.THAWED)
    assert unchanged
    assert await books.dump() == frozen


async def test_thaw_grants_ends_one_freeze_and_tells_it(books: Books) -> None:
    await books.put_node("n1")
    await freeze(books, "n1")
    await freeze(books)
    before = await books.dump()

    order, ended = await books.ledger.thaw_grants(None, context=WHY)

    assert (order, ended and ended.why) == (Order.THAWED, "node burns")
    assert list(await notes(books)) == ["n1"]
    assert await books.changes(before) == lines("""
        journal thaw - -->* | {'who': 'ann', 'why': 'node burns'}
        freezes * gone
    """)


async def test_thaw_grants_of_no_freeze_is_nothing(books: Books) -> None:
    before = await books.dump()

    assert await thaw(books) is Order.NOTHING
    assert await books.dump() == before


@pytest.mark.parametrize("node", [None, "n1"])
async def test_reserve_pod_answers_frozen_and_writes_nothing(
    books: Books, node: str | None
) -> None:
    await books.put_node("n1")
    await freeze(books, node)
    before = await books.dump()

    answers = [await books.reserve(pod("u1")), await books.begin_bind(pod("u1"))]

    assert [answer.outcome for answer in answers] == [Reserve.FROZEN] * 2
    assert await books.dump() == before


async def test_freeze_grants_of_a_node_leaves_the_others(books: Books) -> None:
    await books.put_node("n1")
    await books.put_node("n2")
    await freeze(books, "n1")

    assert (await books.reserve(pod("u1"), "n2")).outcome is Reserve.HELD
    assert (await books.reserve(pod("u1"), "n1", stamp=11)).outcome is Reserve.FROZEN


async def test_reserve_pod_of_what_is_held_goes_on_while_frozen(books: Books) -> None:
    """Asking for no more is no grant: a bind that was under way ends."""
    await books.put_node("n1")
    await books.reserve(pod("u1"))
    await freeze(books)

    again = await books.reserve(pod("u1"), stamp=11)
    more = await books.reserve(pod("u1", rv="2", cpu=2000), stamp=12)
    bind = await books.begin_bind("u1", stamp=13)

    assert [again.outcome, more.outcome, bind.outcome] == [
        *(Reserve.HELD, Reserve.FROZEN, Reserve.BINDING)
    ]
    assert await books.confirm("u1") is Confirm.BOUND


async def test_request_permit_shrinks_and_does_not_grow_while_frozen(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1", vm=vm(2000)))
    await freeze(books, "n1")

    grown = await books.request("u1", 3000)
    pressure = (await books.node()).pressure_cpu
    shrunk = await books.request("u1", 500, stamp=11)

    assert (grown.outcome, grown.amount) == (Permit.PERMIT, Resources(2000, 100))
    assert pressure == 1000
    assert shrunk.amount == Resources(500, 100)
    assert await books.reserved() == (500, 100)


async def test_request_permit_restores_a_lost_permit_while_frozen(books: Books) -> None:
    """What the VM uses already is a fact and no grant."""
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1", vm=vm(1000)))
    await books.new_epoch()
    await freeze(books)

    answer = await books.request("u1", 3000, last=(2000, 100))

    assert answer.amount == Resources(2000, 100)


async def test_request_permit_grows_again_once_thawed(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1", vm=vm(2000)))
    await freeze(books)
    await books.request("u1", 3000)

    await thaw(books)

    assert (await books.request("u1", 3000, stamp=11)).amount == Resources(3000, 100)


async def test_freeze_grants_lets_releases_and_facts_pass(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"))
    await freeze(books)

    assert await books.unreserve("u1") is Release.RELEASED
    assert await books.put_pod(pod("u2", node="n1", cpu=9000)) == "BOOKED"
    assert await books.put_node("n1", cpu=8000, rv="2") == "BOOKED"
    assert await books.delete_pod("u2") == "DELETED"


async def test_freeze_grants_holds_for_books_that_are_built_anew(books: Books) -> None:
    await books.put_node("n1")
    await freeze(books, "n1")
    building = await books.ledger.begin_build(books.leader)
    assert building is not None
    await books.put_node("n1", leader=building)

    published = await books.ledger.publish_build(building)

    assert published is Lead.PUBLISHED
    assert (await books.reserve(pod("u1"))).outcome is Reserve.FROZEN


async def test_freeze_grants_of_everything_needs_no_books(unbuilt: Books) -> None:
    assert await freeze(unbuilt) is Order.FROZEN

    await unbuilt.open()
    await unbuilt.put_node("n1")

    assert (await unbuilt.reserve(pod("u1"))).outcome is Reserve.FROZEN


async def test_mirror_of_every_replica_knows_what_is_frozen(books: Books) -> None:
    """read_changes brings it with the rows, so that every filter agrees with reserve."""
    await books.put_node("n1")
    await books.put_node("n2")
    mirror = books.ledger.mirror
    await mirror.refresh()

    await freeze(books, "n1")
    await mirror.refresh()
    one = [mirror.is_frozen(NodeName(name)) for name in ("n1", "n2")]
    await freeze(books)
    await mirror.refresh()
    all_ = [mirror.is_frozen(NodeName(name)) for name in ("n1", "n2")]
    await thaw(books)
    await thaw(books, "n1")
    await mirror.refresh()

    assert (one, all_) == ([True, False], [True, True])
    assert (mirror.freezes, mirror.is_frozen(N1)) == ({}, False)
