from __future__ import annotations

import msgpack
import pytest

from autoscale_enforcer.ledger.outcomes import Fact
from autoscale_enforcer.model.facts import NodeFact
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import Resources
from tests.support.books import Books, lines, pod


async def test_put_node_books_a_new_node(books: Books) -> None:
    before = await books.dump()

    answer = await books.put_node("n1", 4000, 800)

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        nodes n1 uid=uid-n1 rv=1 config=1 epoch=epoch1 cap=4000/800 version=1
        facts n1 blob
        changes n1 1
        meta nodes 1
        meta version 1
        journal put_node n1 -->n1 |0 4000 800
    """)


async def test_put_node_again_changes_nothing(books: Books) -> None:
    """What changes nothing raises no version."""
    await books.put_node("n1")
    before = await books.dump()

    answer = await books.put_node("n1")

    assert answer is Fact.KNOWN
    assert await books.dump() == before


async def test_put_node_keeps_its_labels(books: Books) -> None:
    fact = NodeFact(
        uid="x",
        name=NodeName("n1"),
        resource_version="1",
        allocatable=Resources(1, 1),
        labels={"zone": "a"},
    )

    await books.ledger.put_node(
        fact, capacity=Resources(1, 1), config_version="1", leader=books.leader
    )

    blob = await books.raw.hget(books.keys.key("facts"), "n1")
    assert msgpack.unpackb(blob) == {"labels": {"zone": "a"}}


async def test_put_node_takes_less_capacity_than_is_reserved(books: Books) -> None:
    await books.put_node("n1", 4000, 800)
    await books.put_pod(pod("u1", node="n1", cpu=3000))
    before = await books.dump()

    answer = await books.put_node("n1", 2000, 800, rv="2")

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        nodes n1 rv=2 cap=2000/800 version=3
        changes n1 3
        meta version 3
        journal put_node n1 -->n1 0 4000 800|0 2000 800
    """)


async def test_put_node_ignores_an_older_version_of_the_node(books: Books) -> None:
    await books.put_node("n1", 4000, rv="10")
    before = await books.dump()

    answer = await books.put_node("n1", 2000, rv="9")

    assert answer is Fact.OLD
    assert await books.dump() == before


async def test_put_node_ignores_an_older_version_of_the_config(books: Books) -> None:
    await books.put_node("n1", 4000, config="10")
    before = await books.dump()

    answer = await books.put_node("n1", 2000, rv="2", config="9")

    assert answer is Fact.OLD
    assert await books.dump() == before


async def test_put_node_applies_a_newer_config_to_an_equal_node(books: Books) -> None:
    await books.put_node("n1", 4000, rv="5", config="1")

    newer = await books.put_node("n1", 3000, rv="5", config="2")
    equal = await books.put_node("n1", 2000, rv="5", config="2")

    assert (newer, equal) == (Fact.BOOKED, Fact.BOOKED)
    assert (await books.node()).cap_cpu == 2000


@pytest.mark.parametrize(
    ("known", "given"),
    [("file-ff", "file-0"), ("file-0", "9"), ("10", "file-0"), ("10", "-"), ("-", "10")],
)
async def test_put_node_takes_configs_that_are_in_no_order(
    books: Books, known: str, given: str
) -> None:
    """Whoever left a config file for the ConfigMap, or took the file back, changed no node again:
    times of files were compared with versions of the ConfigMap.
    """
    await books.put_node("n1", 4000, config=known)

    assert await books.put_node("n1", 2000, rv="2", config=given) is Fact.BOOKED


async def test_put_node_that_returns_sets_its_capacity_and_nothing_else(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1"))
    await books.delete_node("n1")
    before = await books.dump()

    answer = await books.put_node("n1", uid="second", rv="2")

    assert answer is Fact.BOOKED
    assert await books.changes(before) == lines("""
        nodes n1 uid=second rv=2 absent=0 cap=4000/800 version=4
        changes n1 4
        meta version 4
        journal put_node n1 -->n1 1 0 0|0 4000 800
    """)


async def test_put_node_describes_a_node_that_pods_were_seen_on_first(books: Books) -> None:
    await books.put_pod(pod("u1", node="n1"))

    answer = await books.put_node("n1", 4000, 800)

    row = await books.node()
    assert answer is Fact.BOOKED
    assert (row.absent, row.cap_cpu, row.reserved_cpu, row.pods) == (0, 4000, 1000, 1)


async def test_put_node_books_nothing_for_a_node_that_has_left(books: Books) -> None:
    await books.put_node("n1")
    await books.delete_node("n1")
    before = await books.dump()

    answer = await books.put_node("n1", rv="9")

    assert answer is Fact.GONE
    assert await books.dump() == before


async def test_put_node_adds_what_is_missing_as_read_by_any_replica(books: Books) -> None:
    answer = await books.put_node("n1", additive=True)

    assert answer is Fact.BOOKED


async def test_put_node_never_changes_the_leaders_row_for_another_replica(books: Books) -> None:
    await books.put_node("n1", 4000)
    before = await books.dump()

    answer = await books.put_node("n1", 2000, rv="2", additive=True)

    assert answer is Fact.KNOWN
    assert await books.dump() == before
