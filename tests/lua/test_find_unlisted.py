from __future__ import annotations

import pytest

from autoscale_enforcer.model.ids import NodeName, PodUid
from tests.support.books import Books, pod

NODES = [NodeName("n1"), NodeName("n2")]
UIDS = [PodUid("held"), PodUid("binding"), PodUid("bound")]


@pytest.fixture
async def full(books: Books) -> Books:
    """Two nodes; a pod in each stage, one that waits, one that is gone."""
    for name in NODES:
        await books.put_node(name)
    await books.reserve(pod("held"))
    await books.begin_bind(pod("binding"))
    await books.put_pod(pod("bound", node="n2"))
    await books.put_pod(pod("waits"))
    await books.put_pod(pod("gone", node="n2"))
    await books.delete_pod("gone")
    return books


async def test_find_unlisted_names_nothing_in_whole_books(full: Books) -> None:
    before = await full.dump()

    assert await full.ledger.find_unlisted(nodes=NODES, uids=UIDS) == []
    assert await full.dump() == before


@pytest.mark.parametrize("key", ["names", "changes", "deadlines"])
async def test_find_unlisted_names_a_list_that_was_evicted_and_begun_anew(
    full: Books, key: str
) -> None:
    await full.raw.delete(full.keys.key(key))
    await full.reserve(pod("later", cpu=1))

    assert await full.ledger.find_unlisted(nodes=NODES, uids=UIDS) == [key]
    await full.raw.flushall()  # what is left does not add up


async def test_find_unlisted_counts_what_lists_lack_and_gives_the_rows(full: Books) -> None:
    await full.raw.delete(*(full.keys.key(key) for key in ("names", "changes", "deadlines")))

    answer = await full.run("find_unlisted", node_names="n1 n2 n3", uids="held binding gone")

    word, names, nodes, *rows = answer
    assert (word, names, nodes, len(rows)) == ("UNLISTED", 4, 2, 2)
    await full.raw.flushall()


async def test_find_unlisted_does_not_miss_what_has_gone_or_is_bound_by_now(full: Books) -> None:
    await full.delete_pod("held")
    await full.put_pod(pod("binding", node="n1", rv="9"))

    assert await full.ledger.find_unlisted(nodes=[*NODES, NodeName("n9")], uids=UIDS) == []
