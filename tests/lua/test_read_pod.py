from __future__ import annotations

from autoscale_enforcer.ledger.kept import pack_fact
from autoscale_enforcer.model.ids import PodName, PodUid
from tests.support.books import Books, pod


async def test_read_pod_finds_a_pod_by_uid_and_by_name(books: Books) -> None:
    await books.put_node("n1")
    fact = pod("u1", name="web", node="n1")
    await books.put_pod(fact)
    before = await books.dump()

    by_uid = await books.ledger.read_pod(uid=PodUid("u1"))
    by_name = await books.ledger.read_pod(name=PodName("default/web"))

    assert by_uid == by_name
    assert by_uid is not None
    assert (by_uid.uid, by_uid.row.node, by_uid.blob) == ("u1", "n1", pack_fact(fact))
    assert await books.dump() == before


async def test_read_pod_of_a_hold_without_facts_has_no_blob(books: Books) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"))

    answer = await books.run("read_pod", uid="u1", name="")

    assert answer[0] == "POD"
    assert answer[3] == b""


async def test_read_pod_tells_a_gone_pod_from_an_unknown_one(books: Books) -> None:
    await books.delete_pod("u1")

    gone = await books.run("read_pod", uid="u1", name="")
    unknown = await books.run("read_pod", uid="u2", name="")
    unknown_name = await books.run("read_pod", uid="", name="default/u1")

    assert (gone, unknown, unknown_name) == (["GONE"], ["UNKNOWN"], ["UNKNOWN"])
    assert await books.ledger.read_pod(uid=PodUid("u1")) is None
