"""People's door: probes and what the ledger says."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from autoscale_enforcer.api.admin import Health, admin_app
from autoscale_enforcer.api.door.front_door import FrontDoor
from autoscale_enforcer.config.settings import LimitSettings
from autoscale_enforcer.ledger.keys import Keys
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, pod_json, runs_vm
from tests.support.replica import Replica, Reply

GI = 1 << 30


async def get(replica: Replica, path: str) -> Reply:
    reply = await replica.send("admin", path, method="GET")
    assert reply.headers["X-Replica"] == replica.kind.name
    return reply


def amounts(cpu: int, mem: int) -> dict[str, int]:
    return {"cpuMilli": cpu, "memoryBytes": mem}


async def test_nodes_says_what_each_has_and_has_promised(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node("n0", cpu="1", mem="1Gi")
    cluster.pod("vm-1", node="n1", metadata=runs_vm())
    await replica.catch_up()
    await replica.permit("vm-1", 9, "1Gi")

    reply = await get(replica, "/api/v1/nodes")

    n0, n1 = reply.json["nodes"]
    assert (n0["name"], n0["pods"], n0["capacity"]) == ("n0", 0, amounts(1000, GI))
    assert n1 == {
        "name": "n1",
        "capacity": amounts(8000, 32 * GI),
        "reserved": amounts(8000, GI),
        "committed": amounts(8000, GI),
        "ignored": amounts(0, 0),
        "pressure": amounts(1000, 0),
        "migrating": amounts(0, 0),
        "pods": 1,
        "overCapacity": False,
        "absent": False,
        "unsettled": False,
        "frozen": False,
        "version": n1["version"],
    }


async def test_node_says_one_of_them(replica: Replica, cluster: ClusterDouble) -> None:
    cluster.pod("u1", node="n1", cpu="9")
    await replica.catch_up()

    reply = await get(replica, "/api/v1/nodes/n1")

    assert (reply.json["name"], reply.json["overCapacity"]) == ("n1", True)
    assert (await get(replica, "/api/v1/nodes/n9")).status == 404


async def test_pod_says_what_it_holds(replica: Replica, cluster: ClusterDouble) -> None:
    pod = cluster.pod("u1", node="n1", cpu="2")
    await replica.catch_up()

    reply = await get(replica, "/api/v1/pods/default/u1")

    assert reply.json == {
        "uid": "u1",
        "name": "default/u1",
        "node": "n1",
        "stage": "bound",
        "vm": False,
        "autoscaling": False,
        "amount": amounts(2000, GI),
        "charge": amounts(2000, GI),
        "asked": amounts(2000, GI),
        "ignored": False,
        "resourceVersion": pod["metadata"]["resourceVersion"],
        "problem": "",
    }


async def test_pod_says_what_cannot_be_read_of_it(replica: Replica, cluster: ClusterDouble) -> None:
    cluster.pod("u1", node="n1", metadata=runs_vm(annotations={}))
    await replica.catch_up()

    problem = (await get(replica, "/api/v1/pods/default/u1")).json["problem"]

    assert problem.startswith("metadata.annotations['vm.neon.tech/resources']: missing")


@pytest.mark.parametrize("name", ["u9", "a b", "a\nb", "a\0b", "\udcff", "é", "x" * 3000, "-"])
async def test_what_nobody_knows_is_not_found(replica: Replica, name: str) -> None:
    path = quote(name, errors="surrogateescape")

    for place in (f"pods/default/{path}", f"pods/{path}/u1", f"nodes/{path}"):
        reply = await get(replica, f"/api/v1/{place}")
        assert (reply.status, reply.kind) == (404, "text/plain")
        assert reply.text.rstrip("\n").isprintable()


async def test_verify_finds_nothing_then_what_was_planted(replica: Replica) -> None:
    await replica.reserve(pod_json("u1"))
    assert (await get(replica, "/api/v1/verify")).json == {"breaches": []}

    await replica.raw.zrem(Keys("default").key("deadlines"), "u1")

    breaches = (await get(replica, "/api/v1/verify")).json["breaches"]
    assert len(breaches) == 1
    assert "u1" in str(breaches[0])


async def test_probes_of_a_replica_that_is_well(replica: Replica) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        reply = await get(replica, path)
        assert (reply.status, reply.text, reply.kind) == (200, "ok\n", "text/plain")


async def test_it_is_not_ready_before_the_ledger_is_built(start: StartReplica) -> None:
    replica = await start()

    assert (await get(replica, "/livez")).status == 200
    for path in ("/readyz", "/healthz"):
        reply = await get(replica, path)
        assert (reply.status, reply.text) == (503, "the ledger is not built\n")


async def test_it_is_ready_while_the_ledger_is_suspect(replica: Replica) -> None:
    await replica.loses_its_primary()

    assert (await get(replica, "/readyz")).status == 200


async def test_it_is_alive_but_not_ready_while_redis_is_away(orphan: Replica) -> None:
    assert (await get(orphan, "/livez")).status == 200
    for path in ("/readyz", "/api/v1/nodes", "/api/v1/pods/a/b", "/api/v1/verify"):
        reply = await get(orphan, path)
        assert (reply.status, reply.kind) == (503, "text/plain")


async def test_it_is_not_ready_while_it_stops(replica: Replica) -> None:
    """Field report 30: ready turns false first."""
    stop = asyncio.Event()
    health = Health(is_stopping=stop.is_set)
    door = FrontDoor(admin_app(replica.ledger, replica="r1", health=health), LimitSettings())
    await door.start()
    port = await door.listen("127.0.0.1", 0, reuse_port=False)

    stop.set()
    async with replica.session.get(f"http://127.0.0.1:{port}/readyz") as reply:
        status, text = reply.status, await reply.text()

    await door.close()
    assert (status, text) == (503, "stopping\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/livez", "/api/v1/nodes", "/api/v1/pods/default/u1"])
async def test_people_may_only_read(replica: Replica, method: str, path: str) -> None:
    before = await replica.dump()

    reply = await replica.send("admin", path, {"x": 1}, method=method)

    assert (reply.status, reply.kind, reply.headers["X-Replica"]) == (405, "text/plain", "r1")
    assert reply.headers["Allow"] == "GET,HEAD"
    assert await replica.dump() == before


async def test_every_read_leaves_the_ledger_as_it_is(replica: Replica) -> None:
    await replica.reserve(pod_json("u1"))
    before: dict[str, Any] = await replica.dump()

    for path in ("/api/v1/nodes", "/api/v1/nodes/n1", "/api/v1/pods/default/u1", "/api/v1/verify"):
        assert (await get(replica, path)).status == 200

    assert await replica.dump() == before
