from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger import reads
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.reading import find_breaches, read_books
from autoscale_enforcer.ledger.verify import breaches
from autoscale_enforcer.model.ids import NodeName, PodUid
from tests.support.books import EPOCH, Books, pod


async def test_read_books_tells_everything(books: Books) -> None:
    await books.put_node("n1")
    await books.put_pod(pod("u1", node="n1", labels={"app": "web"}))
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


async def test_read_rows_tells_what_is_asked_and_what_was_done_since(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"))
    ids = [entry[0] for entry in await books.raw.xrange(books.keys.key("journal"))]

    word, meta, nodes, pods, journal, node_rows, pod_rows, names = await books.run(
        "read_rows",
        since=ids[1],
        entries=10,
        node_names="n1 n2",
        uids="u1 u2",
        pod_names="default/u1 default/u2",
    )

    node, row = await books.node(), await books.pod("u1")
    assert row is not None
    assert (word, meta, nodes, pods) == ("ROWS", [EPOCH.encode(), b"2", b"1", b"1"], 1, 1)
    assert [entry[0] for entry in journal] == ids[1:]
    assert node_rows == [b"n1", node.encode().encode(), b"2", b"n2", b"", b""]
    deadline = str(row.deadline).encode()
    assert pod_rows == [b"u1", row.encode().encode(), deadline, b"", b"u2", b"", b"", b""]
    assert names == [b"default/u1", b"u1", b"default/u2", b""]


async def test_scan_books_tells_the_journal_from_its_end(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await books.put_node(f"n{number}")
    ids = [entry[0] for entry in await books.raw.xrange(books.keys.key("journal"))]
    monkeypatch.setattr(reads, "SCAN_PORTION", 2)

    portions = [flat async for flat in books.ledger.scan("journal")]
    newest = [flat async for flat in books.ledger.scan("journal", most=3)]

    assert [number for flat in portions for number in flat[::2]] == ids[::-1]
    assert [number for flat in newest for number in flat[::2]] == ids[:-5:-1]


Change = Callable[[Books], Awaitable[object]]


async def move(books: Books) -> None:
    await books.unreserve("u1", stamp=20)
    await books.reserve("u1", "n2", stamp=30)


async def rename_and_replace(books: Books) -> None:
    await books.put_pod(pod("u9", name="u1", rv="9", node="n2"))


CHANGES: list[Change] = [
    move,
    rename_and_replace,
    lambda books: books.delete_pod("u2"),
    lambda books: books.reserve(pod("u7"), "n1"),
    lambda books: books.put_pod(pod("u8")),
    lambda books: books.delete_node("n2"),
    lambda books: books.put_node("n3"),
]


class Between:
    """Makes changes in front of chosen scripts of a ledger, as others do while it is read."""

    def __init__(self, books: Books, ledger: Ledger, changes: dict[str, Change]) -> None:
        self.books, self.changes = books, changes
        self.run = ledger._run

    async def __call__(self, script: str, **given: Any) -> list[Any]:
        key = str(given["part"]) if script == "scan_books" else script
        if change := self.changes.pop(key, None):
            await change(self.books)
        return await self.run(script, **given)


PARTS = ("journal", "changes", "nodes", "names", "deadlines", "gone", "pods", "read_rows")


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
@pytest.mark.parametrize("part", PARTS)
async def test_what_changes_while_it_is_read_is_no_breach(
    books: Books, monkeypatch: pytest.MonkeyPatch, part: str, change: Change
) -> None:
    await some_books(books)
    other = books.another()
    for read in (find, whole):
        monkeypatch.setattr(other, "_run", Between(books, books.ledger, {part: change}))
        assert await read(other) == []
    await other.close()


async def some_books(books: Books) -> None:
    await books.put_node("n1")
    await books.put_node("n2")
    await books.reserve(pod("u1"))
    await books.put_pod(pod("u2", node="n2"))
    await books.put_pod(pod("u3", node="n1"))


async def find(ledger: Ledger) -> Collection[object]:
    return await find_breaches(ledger)


async def whole(ledger: Ledger) -> Collection[object]:
    """As an import looks at an export: without the journal."""
    found = await read_books(ledger)
    found.journal.clear()
    return breaches(found)


async def test_what_is_wrong_is_found_while_other_things_change(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    await some_books(books)
    await books.falsify("n1", reserved_cpu=7)
    other = books.another()
    monkeypatch.setattr(other, "_run", Between(books, books.ledger, {"pods": move}))

    found = await find_breaches(other)

    await other.close()
    assert {(breach.invariant, breach.subject) for breach in found} == {(1, "n1")}
    await books.falsify("n1", reserved_cpu=(await books.node_row("n1")).committed_cpu)


async def test_books_of_another_epoch_are_read_anew(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    await some_books(books)
    other = books.another()
    change: Change = lambda books: books.new_epoch()  # noqa: E731 - one of several
    monkeypatch.setattr(other, "_run", Between(books, books.ledger, {"pods": change}))

    with pytest.raises(LedgerUnavailable, match="another epoch"):
        await find_breaches(other)

    await other.close()


async def test_note_binding_keeps_the_first_binding(books: Books) -> None:
    first = await books.run("note_binding", uid="u1", node="n1")
    second = await books.run("note_binding", uid="u1", node="n2")

    assert (first, second) == (["NOTED", b"n1"], ["NOTED", b"n1"])
    assert await books.run("read_bindings") == ["BINDINGS", b"u1", b"n1"]
