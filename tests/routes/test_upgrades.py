"""A ledger of another release: one back, one to come, and one that has to be migrated."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest
import redis.asyncio

from autoscale_enforcer.ledger import schema
from autoscale_enforcer.ledger.reading import find_breaches
from autoscale_enforcer.ledger.schema import Layout, Schema
from autoscale_enforcer.ledger.transfer import ImportRefused, import_books
from autoscale_enforcer.model.ids import PodUid
from autoscale_enforcer.model.resources import Resources
from tests.routes.conftest import StartReplica
from tests.support.books import Books, pod
from tests.support.cluster_double import ClusterDouble, pod_json
from tests.support.replica import Replica

LEDGERS = Path(__file__).parents[1] / "data" / "ledger"
CLUSTER = Path(__file__).parents[1] / "data" / "traffic" / "cluster.json"
GIB = 1 << 30


@pytest.fixture
async def kept(raw_client: redis.asyncio.Redis) -> Any:
    """Every key that the first release left behind, on the server that it ran on."""
    raw: Any = raw_client
    for key, (kind, value) in msgpack.unpackb(
        (LEDGERS / "first_release_keys.msgpack").read_bytes(), strict_map_key=False
    ).items():
        if kind == "hash":
            await raw.hset(key, mapping=value)
        elif kind == "zset":
            await raw.zadd(key, value)
        else:
            for number, fields in value:
                await raw.xadd(key, fields, id=number)
    replid = (await raw.info("replication"))["master_replid"]
    await raw.hset("ae:{t}:meta", "replid", replid)
    books = Books(raw, "valkey")
    yield books
    await books.ledger.close()


async def test_first_releases_ledger_goes_on_where_it_was(kept: Books) -> None:
    """As in a rolling update: settled, every hold and permit there, and grants are made on it."""
    guard = await kept.ledger.look()
    vm, held = await kept.amount("vm-1"), await kept.ledger.read_pod(uid=PodUid("held"))
    reserved = await kept.reserve(pod("new", cpu=500, mem=GIB), "n2", stamp=2 * 10**15)
    permit = await kept.request("vm-1", 4000, 2 * GIB, unit=(250, GIB), stamp=2 * 10**15)

    assert (guard.state, guard.epoch) == ("SETTLED", "epoch1")
    assert (vm, held and held.row.stage) == ((3000, 2 * GIB), "held")
    assert reserved.outcome == "HELD"
    assert permit.amount == Resources(4000, 2 * GIB)
    assert await find_breaches(kept.ledger) == []


async def test_first_releases_export_can_be_imported(kept: Books) -> None:
    await kept.raw.flushall()
    content = (LEDGERS / "first_release_export.msgpack").read_bytes()

    summary = await import_books(kept.ledger, content, replace=False)

    assert (summary.nodes, summary.pods) == (3, 7)
    assert (await kept.ledger.look()).state == "SUSPECT"
    assert await find_breaches(kept.ledger) == []


async def test_export_of_another_schema_is_refused(kept: Books) -> None:
    file = msgpack.unpackb((LEDGERS / "first_release_export.msgpack").read_bytes())
    file["meta"][b"schema"] = b"2"
    before = await kept.dump()

    with pytest.raises(ImportRefused, match="by a newer release"):
        await import_books(kept.ledger, msgpack.packb(file), replace=True)

    assert await kept.dump() == before


async def become(replica: Replica, schema: int) -> None:
    """The ledger is another release's, as far as its schema says."""
    await replica.raw.hset("ae:{default}:meta", "schema", str(schema))


async def test_newer_ledger_is_refused_in_words_at_each_door(
    replica: Replica, cluster: ClusterDouble
) -> None:
    await become(replica, 2)
    before = await replica.dump()

    filtered = await replica.filter(pod_json("u1"))
    reserved = await replica.reserve(pod_json("u1"))
    asked = await replica.ask("vm-1", 1, "1Gi")
    ready = await replica.send("admin", "/readyz", method="GET")
    await replica.leader._try_turn()

    words = "the ledger was written by a newer release: its schema is 2, this release knows 1"
    assert filtered.error.startswith(words)
    assert reserved[0] == "Error"
    assert (asked.status, ready.status) == (503, 503)
    assert ready.text.startswith(words)
    assert await replica.dump() == before


async def test_older_ledger_is_migrated_by_whichever_replica_comes_first(
    replica: Replica, start: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It need not lead: the leader may be of the older release, and be replaced only later."""
    this = schema.SCHEMAS[1]
    pods = Layout(this.pods.fields, {"stamp": "0"})
    monkeypatch.setitem(schema.SCHEMAS, 0, Schema(this.nodes, Layout(this.pods.fields[:-1])))
    monkeypatch.setitem(schema.SCHEMAS, 1, Schema(this.nodes, pods))
    await replica.reserve(pod_json("u1"))
    row = await replica.raw.hget("ae:{default}:pods", "u1")
    await replica.raw.hset("ae:{default}:pods", "u1", row.rpartition(b" ")[0])
    await become(replica, 0)
    other = await start(name="r2")

    await other.leader._try_turn()

    assert await other.where("u1") == "held n1"
    assert (await replica.filter(pod_json("u2"))).passed == ["n1"]
    assert await other.verify() == []


async def test_serve_ends_with_words_on_a_newer_ledger(
    redis_url: str, raw_client: redis.asyncio.Redis
) -> None:
    raw: Any = raw_client
    await raw.hset("ae:{default}:meta", mapping={"schema": "2", "epoch": "theirs"})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "autoscale_enforcer.cli.main", "serve"),
        *("--redis-url", redis_url, "--cluster", f"file:{CLUSTER}"),
        *("--extender-port", "0", "--agent-port", "0", "--admin-port", "0"),
        env={**os.environ, "AE_HOST": "127.0.0.1"},
        stderr=asyncio.subprocess.PIPE,
    )

    _, said = await process.communicate()

    assert process.returncode == 2
    assert b"--redis-url: the ledger was written by a newer release" in said
    assert await raw.hgetall("ae:{default}:meta") == {b"schema": b"2", b"epoch": b"theirs"}
