from __future__ import annotations

from typing import Any

from autoscale_enforcer.model.rows import NodeRow
from tests.support.books import EPOCH, Books, pod


async def changes_since(books: Books, since: int, *, epoch: str = EPOCH) -> list[Any]:
    return await books.run("read_changes", epoch=epoch, since=since)


def named(answer: list[Any]) -> dict[str, int | None]:
    """Node name to the version of its row; None where it is gone."""
    return {
        name.decode(): NodeRow.decode(row.decode()).version if row else None
        for name, row in zip(answer[6::2], answer[7::2], strict=True)
    }


async def test_read_changes_names_what_changed_since(books: Books) -> None:
    for name in ("n1", "n2", "n3"):
        await books.put_node(name)
    await books.put_pod(pod("u1", node="n1"))
    before = await books.dump()

    answer = await changes_since(books, 2)

    assert answer[:4] == ["DELTA", EPOCH.encode(), 4, b"settled"]
    assert named(answer) == {"n3": 3, "n1": 4}
    assert await books.dump() == before


async def test_read_changes_names_nodes_that_have_left(books: Books) -> None:
    await books.put_node("n1")
    await books.delete_node("n1")

    answer = await changes_since(books, 1)

    assert answer[0] == "DELTA"
    assert named(answer) == {"n1": None}


async def test_read_changes_is_empty_where_nothing_changed(books: Books) -> None:
    await books.put_node("n1")
    await books.put_node("n1")

    answer = await changes_since(books, 1)

    assert (answer[0], answer[2], named(answer)) == ("DELTA", 1, {})


async def test_read_changes_of_another_epoch_names_everything(books: Books) -> None:
    await books.put_node("n1")
    await books.put_node("n2")

    answer = await changes_since(books, 2, epoch="other")

    assert answer[0] == "FULL"
    assert named(answer) == {"n1": 1, "n2": 2}


async def test_read_changes_older_than_what_is_kept_names_everything(books: Books) -> None:
    await books.put_node("n1")
    await books.raw.hset(books.keys.key("meta"), "oldest", "1")

    too_old = await changes_since(books, 0)
    just_kept = await changes_since(books, 1)

    assert (too_old[0], just_kept[0]) == ("FULL", "DELTA")


async def test_read_changes_of_no_books(unbuilt: Books) -> None:
    answer = await unbuilt.run("read_changes", epoch="", since=0)

    assert answer == ["UNBUILT"]
