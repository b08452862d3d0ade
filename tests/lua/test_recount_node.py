from __future__ import annotations

from typing import Any

import pytest

from autoscale_enforcer.ledger.outcomes import Recount
from tests.support.books import Books, lines, pod, vm

ALL = ["u1", "u2", "v1"]
FALSE: list[dict[str, Any]] = [
    {"reserved_cpu": 1, "reserved_mem": 0},
    {"committed_cpu": 77, "ignored_mem": 5},
    {"migrating_mem": 9, "pressure_cpu": 3},
    {"pods": 0},
    {"vms": 7, "heard": 6},
    {"reserved_cpu": -5},
]


@pytest.fixture
async def full(books: Books) -> Books:
    """Three pods on n1, one on n2 and one that waits."""
    for name in ("n1", "n2"):
        await books.put_node(name)
    await books.put_pod(pod("u1", node="n1"))
    await books.reserve(pod("u2"), stamp=5)
    await books.put_pod(pod("v1", node="n1", vm=vm()))
    await books.put_pod(pod("elsewhere", node="n2"))
    await books.put_pod(pod("waits"))
    return books


@pytest.mark.parametrize("false", FALSE, ids=str)
async def test_recount_node_makes_the_sums_those_of_the_pods(
    full: Books, false: dict[str, Any]
) -> None:
    """`verify` showed such a row, and nothing put it right."""
    right = await full.node_row("n1")
    await full.falsify("n1", **false)

    answer = await full.recount("n1", ALL)

    assert answer is Recount.RECOUNTED
    row = await full.node_row("n1")
    assert row.version > right.version
    row.version = right.version
    assert row == right


async def test_recount_node_journals_both_and_lets_every_mirror_know(full: Books) -> None:
    await full.falsify("n1", reserved_cpu=9, pods=1)
    before = await full.dump()

    await full.recount("n1", ALL)

    assert await full.changes(before) == lines("""
        nodes n1 reserved=3000/300 pods=3 version=7
        changes n1 7
        meta version 7
        journal recount n1 -->n1 9 300 3000 300 0 0 0 0 0 0 1 1|3000 300 3000 300 0 0 0 0 0 0 3 1
    """)


async def test_recount_node_leaves_right_sums_alone(full: Books) -> None:
    before = await full.dump()

    answer = await full.recount("n1", ALL)

    assert answer is Recount.RIGHT
    assert await full.changes(before) == ""


async def test_recount_node_counts_what_is_on_the_node_only(full: Books) -> None:
    before = await full.dump()

    answer = await full.recount("n1", [*ALL, "elsewhere", "waits", "nobody"])

    assert answer is Recount.RIGHT
    assert await full.changes(before) == ""


async def test_recount_node_leaves_a_node_that_has_changed_since(full: Books) -> None:
    """A pod that came after the pods were read was not among them, and not counted any more."""
    seen = await full.node_row("n1")
    await full.put_pod(pod("late", node="n1"))
    await full.falsify("n1", pods=9)
    before = await full.dump()

    answer = await full.recount(
        "n1", ALL, behind=(await full.node_row("n1")).version - seen.version
    )

    assert answer is Recount.CHANGED
    assert await full.changes(before) == ""
    await full.falsify("n1", pods=4)


async def test_recount_node_of_a_node_that_is_gone_does_nothing(full: Books) -> None:
    before = await full.dump()

    answer = await full.recount("nowhere", ALL)

    assert answer is Recount.CHANGED
    assert await full.changes(before) == ""


async def test_recount_node_takes_an_absent_node_away_that_no_pod_is_on(full: Books) -> None:
    await full.delete_pod("elsewhere")
    await full.falsify("n2", absent=1, cap_cpu=0, cap_mem=0, uid="-", pods=1)
    before = await full.dump()

    answer = await full.recount("n2", [])

    assert answer is Recount.RECOUNTED
    assert "nodes n2 gone" in await full.changes(before)


async def test_recount_node_again_does_nothing_more(full: Books) -> None:
    await full.falsify("n1", pods=9)
    await full.recount("n1", ALL)
    before = await full.dump()

    assert await full.recount("n1", ALL, behind=1) is Recount.CHANGED
    assert await full.recount("n1", ALL) is Recount.RIGHT
    assert await full.changes(before) == ""


async def test_recount_node_counts_agents_of_this_epoch_only(full: Books) -> None:
    await full.request("v1", 1000, 100, stamp=9)
    await full.new_epoch()
    await full.falsify("n1", pods=9)

    assert await full.recount("n1", ALL) is Recount.RECOUNTED

    row = await full.node_row("n1")
    assert (row.epoch, row.vms, row.heard) == ("epoch2", 1, 0)
