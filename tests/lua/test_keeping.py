"""claim_ledger, put_config, read_config, trim_changes and scan_books."""

from __future__ import annotations

from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.outcomes import Keep
from autoscale_enforcer.model.ids import PodUid
from tests.support.books import Books, pod


async def test_claim_ledger_gives_it_to_the_first_cluster_for_good(unbuilt: Books) -> None:
    first = await unbuilt.ledger.claim("ours")
    before = await unbuilt.dump()

    again = await unbuilt.ledger.claim("ours")
    other = await unbuilt.ledger.claim("theirs")

    assert (first, again) == ((Keep.CLAIMED, "ours"), (Keep.CLAIMED, "ours"))
    assert other == (Keep.FOREIGN, "ours")
    assert await unbuilt.changes({}) == "meta cluster ours"
    assert await unbuilt.dump() == before


async def test_put_config_keeps_the_newest(unbuilt: Books) -> None:
    """Versions are compared as numbers: 9 is older than 10."""
    kept = await unbuilt.ledger.put_config(version="10", text=b"ten")
    before = await unbuilt.dump()

    old = await unbuilt.ledger.put_config(version="9", text=b"nine")
    again = await unbuilt.ledger.put_config(version="10", text=b"ten")

    assert (kept, old, again) == (Keep.KEPT, Keep.OLD, Keep.KEPT)
    assert await unbuilt.dump() == before
    assert await unbuilt.run("read_config") == ["CONFIG", b"10", b"ten"]


async def test_read_config_knows_none_at_first(unbuilt: Books) -> None:
    assert await unbuilt.run("read_config") == ["NOTHING"]
    assert await unbuilt.ledger.read_config() is None


async def test_publish_build_keeps_whose_ledger_it_is_and_the_config(books: Books) -> None:
    await books.ledger.claim("ours")
    await books.ledger.put_config(version="1", text=b"one")
    building = await books.ledger.begin_build(books.leader)
    assert building is not None

    await books.ledger.publish_build(building)

    assert await books.ledger.claim("theirs") == (Keep.FOREIGN, "ours")
    assert await books.ledger.read_config() == ("1", b"one")


async def test_trim_changes_forgets_removed_nodes_only(books: Books) -> None:
    for name in ("n1", "n2", "n3"):
        await books.put_node(name)
    await books.delete_node("n1")
    await books.delete_node("n3")
    before = await books.dump()

    answer = await books.run("trim_changes", token=books.leader.token, before=4, limit=9)
    again = await books.run("trim_changes", token=books.leader.token, before=4, limit=9)

    assert (answer, again) == (["TRIMMED", 1], ["TRIMMED", 0])
    assert await books.changes(before) == "changes n1 gone\nmeta oldest 4"


async def test_trim_changes_makes_older_mirrors_read_everything(books: Books) -> None:
    await books.put_node("n1")
    await books.put_node("n2")
    await books.ledger.mirror.refresh()
    await books.delete_node("n1")
    await books.ledger.trim_changes(books.leader, before=3)

    await books.ledger.mirror.refresh()

    assert books.ledger.mirror.nodes.keys() == {"n2"}


async def test_trim_changes_of_a_leader_that_was_overtaken_does_nothing(books: Books) -> None:
    await books.put_node("n1")
    await books.delete_node("n1")
    before = await books.dump()

    answer = await books.ledger.trim_changes(Leadership("stale"), before=9)

    assert answer is Keep.FENCED
    assert await books.dump() == before


async def test_scan_books_names_every_pod(books: Books) -> None:
    uids = [f"u{number}" for number in range(1500)]
    for uid in uids[:3]:
        await books.put_pod(pod(uid))
    row = await books.raw.hget(books.keys.key("pods"), "u0")
    await books.raw.hset(books.keys.key("pods"), mapping=dict.fromkeys(uids[3:], row))
    await books.raw.hset(books.keys.key("meta"), "pods", str(len(uids)))
    before = await books.dump()

    word, *_ = await books.run("scan_books", part="pods", cursor="0", count=10)
    found = await books.ledger.scan_pods()

    assert word == "PORTION"
    assert found.keys() == set(uids)
    assert found[PodUid("u0")] == await books.pod("u0")
    assert await books.dump() == before
    await books.raw.hdel(books.keys.key("pods"), *uids[3:])
    await books.raw.hset(books.keys.key("meta"), "pods", "3")
