"""load_pods: many pods of a first list, put beside the books in one call."""

from __future__ import annotations

from datetime import timedelta

import pytest

from autoscale_enforcer.errors import ServiceError
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.kept import unpack_fact
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.resources import Resources
from tests.support.books import TOKEN, Books, lines, pod, vm


async def begin(books: Books) -> Leadership:
    building = await books.ledger.begin_build(books.leader)
    assert building is not None
    return building


async def load(books: Books, leader: Leadership, *facts: PodFact) -> list[str] | None:
    left = await books.ledger.load_pods([(fact, False) for fact in facts], leader=leader)
    return None if left is None else [str(uid) for uid in left]


async def test_load_pods_puts_pods_and_their_nodes_sums_beside_the_books(books: Books) -> None:
    building = await begin(books)
    await books.put_node("n1", leader=building)
    scaled = vm(1001, 100, over=(1500, 3000), approved=Resources(2002, 50))
    before = await books.dump()

    left = await load(
        books,
        building,
        pod("u1", node="n1"),
        pod("v1", node="n1", vm=scaled),
        pod("u2", node="n2", labels={"app": "web"}),
        pod("u3"),
    )

    assert left == []
    assert await books.changes(before) == lines("""
        new_nodes n1 reserved=2334/133 committed=3002/200 pods=2 vms=1 version=2
        new_nodes n2 epoch=EPOCH absent=1 sums=1000/100 pods=1 version=3
        new_pods u1 name=default/u1 node=n1 stage=bound rv=1 holds=1000/100
        new_pods u2 name=default/u2 node=n2 stage=bound rv=1 holds=1000/100
        new_pods u3 name=default/u3 rv=1 holds=1000/100
        new_pods v1 name=default/v1 node=n1 stage=bound rv=1 vm=1 scaled=1 amount=2002/100
          charge=1334/33 asked=2002/100 use=1001/100 max=8000/800 over=1500/3000
        new_names default/u1 u1
        new_names default/u2 u2
        new_names default/u3 u3
        new_names default/v1 v1
        new_facts u2 blob
        new_facts v1 blob
        new_changes n1 2
        new_changes n2 3
        new_meta nodes 2
        new_meta pods 4
        new_meta version 3
    """).replace("EPOCH", building.build_epoch)


async def test_load_pods_makes_the_books_that_put_pod_makes(books: Books) -> None:
    """But for the versions, which tell how often a node has changed."""
    facts = [
        pod("u1", node="n1"),
        pod("u2", node="n1", labels={"app": "web"}),
        pod("v1", node="n2", vm=vm(approved=Resources(3000, 0)), migration_source=True),
        pod("v2", node="n2", problem="no JSON"),
        pod("u3"),
    ]
    building = await begin(books)
    for fact in facts:
        await books.put_pod(fact, leader=building)
    await books.ledger.publish_build(building)
    one_by_one = {fact.uid: await books.pod(fact.uid) for fact in facts}

    building = await begin(books)
    await load(books, building, *facts)
    await books.ledger.publish_build(building)

    assert {fact.uid: await books.pod(fact.uid) for fact in facts} == one_by_one
    known = [await books.ledger.read_pod(uid=fact.uid) for fact in facts]
    assert [unpack_fact(each) for each in known] == facts


async def test_load_pods_counts_ignored_namespaces_apart(books: Books) -> None:
    building = await begin(books)
    await books.put_node("n1", leader=building)

    await books.ledger.load_pods([(pod("u1", node="n1"), True)], leader=building)
    await books.ledger.publish_build(building)

    row = await books.node()
    assert (row.reserved, row.ignored) == (Resources(0, 0), Resources(1000, 100))


async def test_load_pods_again_counts_each_pod_once(books: Books) -> None:
    building = await begin(books)
    await load(books, building, pod("u1", node="n1"))
    before = await books.dump()

    left = await load(books, building, pod("u1", node="n1"), pod("u1", node="n1"))

    assert left == []
    assert await books.dump() == before


async def test_load_pods_passes_over_what_is_known_by_now(books: Books) -> None:
    building = await begin(books)
    await books.put_pod(pod("u1", rv="2", node="n1"), leader=building)
    await books.delete_pod("u2", leader=building)
    before = await books.dump()

    left = await load(books, building, pod("u1", rv="1"), pod("u2", node="n1"))

    assert left == []
    assert await books.dump() == before


async def test_load_pods_leaves_a_second_pod_of_a_name_to_put_pod(books: Books) -> None:
    building = await begin(books)

    left = await load(
        books, building, pod("old", name="web", node="n1"), pod("new", name="web", rv="2")
    )

    assert left == ["new"]
    assert await books.raw.hkeys(books.keys.key("new_pods")) == [b"old"]


async def test_load_pods_tells_whom_it_left_out(books: Books) -> None:
    building = await begin(books)
    await load(books, building, pod("old", name="web"))
    row = await beside(books, "old")

    answer = await books.run(
        "load_pods",
        epoch=building.build_epoch,
        token=TOKEN,
        rows=f"new 0 0 0 {row}",
        blobs=b"",
    )

    assert answer == ["LOADED", b"new"]


async def beside(books: Books, uid: str) -> str:
    text: bytes = await books.raw.hget(books.keys.key("new_pods"), uid)
    return text.decode()


async def test_load_pods_writes_nothing_where_one_row_is_none(books: Books) -> None:
    building = await begin(books)
    await load(books, building, pod("u1", node="n1"))
    row = await beside(books, "u1")
    before = await books.dump()

    with pytest.raises(ServiceError, match="not a row of a pod"):
        await books.run(
            "load_pods",
            epoch=building.build_epoch,
            token=TOKEN,
            rows=f"u2 0 0 0 {row.replace('u1', 'u2')}\nu3 0 0 0 {row.rpartition(' ')[0]}",
            blobs=b"",
        )

    assert await books.dump() == before


async def test_load_pods_refuses_a_builder_that_was_overtaken(books: Books) -> None:
    ours = await begin(books)
    await books.ledger.drop_lease(token=TOKEN)
    await books.ledger.take_lease(holder="them", token="token2", lifetime=timedelta(hours=1))
    await books.ledger.begin_build(Leadership("token2"))
    before = await books.dump()

    answer = await load(books, ours, pod("u1", node="n1"))

    assert answer is None
    assert await books.dump() == before


async def test_load_pods_refuses_what_was_meant_for_an_earlier_build(books: Books) -> None:
    earlier = await begin(books)
    await begin(books)
    before = await books.dump()

    answer = await load(books, earlier, pod("u1", node="n1"))

    assert answer is None
    assert await books.dump() == before
