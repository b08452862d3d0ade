from __future__ import annotations

from autoscale_enforcer.ledger.transfer import read_books
from autoscale_enforcer.model.ids import NodeName, PodUid
from tests.support.books import EPOCH, Books, pod


async def test_read_books_tells_everything_of_one_moment(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1"))
    await books.reserve(pod("u2"))
    await books.delete_pod("u3")
    before = await books.dump()

    found = await read_books(books.ledger, blobs=True)

    assert (found.meta["epoch"], found.meta["nodes"], found.meta["pods"]) == (EPOCH, "1", "2")
    assert found.nodes[NodeName("n1")] == await books.node()
    assert found.pods[PodUid("u2")] == await books.pod("u2")
    assert found.names == {"default/u1": "u1", "default/u2": "u2"}
    assert found.blobs.keys() == {"n1", "u1"}
    assert (found.changes, list(found.deadlines), list(found.gone)) == ({"n1": 3}, ["u2"], ["u3"])
    assert [entry.what for entry in found.journal] == ["build", "put_node", "put_pod", "reserve"]
    assert await books.dump() == before


async def test_read_books_leaves_out_what_is_not_wanted(books: Books) -> None:
    await books.put_node("n1")

    word, *parts = await books.run("read_books", blobs=0, entries=0)

    assert (word, parts[3], parts[8]) == ("BOOKS", [], [])


async def test_note_binding_keeps_the_first_binding(books: Books) -> None:
    first = await books.run("note_binding", uid="u1", node="n1")
    second = await books.run("note_binding", uid="u1", node="n2")

    assert (first, second) == (["NOTED", b"n1"], ["NOTED", b"n1"])
    assert await books.run("read_bindings") == ["BINDINGS", b"u1", b"n1"]
