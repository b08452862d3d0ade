"""Operators' orders over the admin port, and what everybody else is told meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from autoscale_enforcer.policy.fit import Reason
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, Gate, never_arrives, pod_json, runs_vm
from tests.support.replica import Filtered, Replica, Reply

TOKEN = "s3cret"
WHO = {"who": "ann", "why": "INC-12"}


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    return file


@pytest.fixture
async def replica(start: StartReplica, token_file: Path) -> Replica:
    replica = await start(admin_token_file=token_file)
    await replica.lead()
    return replica


async def order(replica: Replica, what: str, *, token: str = TOKEN, **fields: Any) -> Reply:
    """An order, as ann gives it."""
    headers = {"Authorization": f"Bearer {token}"}
    body = {**WHO, **fields}
    return await replica.send("admin", f"/api/v1/{what}", body, headers=headers)


async def read(replica: Replica, path: str) -> Any:
    return (await replica.send("admin", path, method="GET")).json


# Freeze and thaw


async def test_freeze_is_told_to_kube_scheduler_on_every_verb(replica: Replica) -> None:
    pod = pod_json("u1")
    assert (await order(replica, "freeze")).json["outcome"] == "FROZEN"

    filtered = await replica.filter(pod)
    scores = await replica.prioritize(pod)
    reserved = await replica.reserve(pod)
    bound = await replica.bind(pod)

    assert filtered == Filtered([], {}, {"n1": Reason.FROZEN}, "")
    assert scores == {"n1": 0}
    assert reserved == ("UnschedulableAndUnresolvable", [Reason.FROZEN])
    assert bound == Reason.FROZEN


async def test_freeze_of_a_node_leaves_the_others(replica: Replica, cluster: ClusterDouble) -> None:
    cluster.node("n2")
    await replica.catch_up()

    await order(replica, "freeze", node="n1")

    filtered = await replica.filter(pod_json("u1"), "n1", "n2")
    assert (filtered.passed, filtered.unresolvable) == (["n2"], {"n1": Reason.FROZEN})


async def test_freeze_lets_a_pod_pass_where_it_is_held_already(replica: Replica) -> None:
    """A reserve there is no grant, so filter may not say other than reserve."""
    pod = pod_json("u1")
    await replica.reserve(pod)

    await order(replica, "freeze")

    assert (await replica.filter(pod)).passed == ["n1"]
    assert (await replica.reserve(pod))[0] == "Success"
    more = pod_json("u1", cpu="2", rv="2")
    assert (await replica.filter(more)).unresolvable == {"n1": Reason.FROZEN}
    assert (await replica.reserve(more))[1] == [Reason.FROZEN]


async def test_freeze_evicts_nobody(replica: Replica, cluster: ClusterDouble) -> None:
    """Victims on a frozen node would be evicted for a pod that is refused there all the same."""
    cluster.pod("u1", node="n1", cpu="8")
    await replica.catch_up()
    assert await replica.preempt(pod_json("u2"), n1=["u1"]) == {"n1": ["u1"]}

    await order(replica, "freeze", node="n1")

    assert await replica.preempt(pod_json("u2"), n1=["u1"]) == {}


async def test_freeze_keeps_vms_from_growing_and_lets_them_shrink(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("vm-1", node="n1", metadata=runs_vm(use="2", slots=2))
    await replica.catch_up()
    await order(replica, "freeze")

    grown = await replica.permit("vm-1", 4, "4Gi")
    pressure = (await read(replica, "/api/v1/nodes/n1"))["pressure"]
    shrunk = await replica.permit("vm-1", 1, "1Gi")

    assert grown == (2, "2Gi")
    assert pressure == {"cpuMilli": 2000, "memoryBytes": 2 << 30}
    assert shrunk == (1, "1Gi")


async def test_freeze_holds_at_every_replica_and_is_shown_by_each(
    replica: Replica, start: StartReplica
) -> None:
    other = await start(name="r2")

    await order(replica, "freeze", node="n1")

    assert (await other.filter(pod_json("u1"))).unresolvable == {"n1": Reason.FROZEN}
    nodes = await read(other, "/api/v1/nodes")
    (freeze,) = nodes["freezes"]
    assert nodes["nodes"][0]["frozen"] is True
    assert (freeze["node"], freeze["who"], freeze["why"]) == ("n1", "ann", "INC-12")
    metrics = (await other.send("admin", "/metrics", method="GET")).text
    assert "\nae_frozen 0.0\n" in metrics
    assert "\nae_frozen_nodes 1.0\n" in metrics


async def test_thaw_names_what_is_still_frozen(replica: Replica) -> None:
    await order(replica, "freeze", node="n1")
    await order(replica, "freeze")

    answer = (await order(replica, "thaw")).json

    assert (answer["outcome"], answer["freeze"]["node"]) == ("THAWED", None)
    assert [each["node"] for each in answer["stillFrozen"]] == ["n1"]
    assert (await order(replica, "thaw", node="n1")).json["stillFrozen"] == []
    assert (await replica.filter(pod_json("u1"))).passed == ["n1"]
    assert (await order(replica, "thaw")).json["outcome"] == "NOTHING"


async def test_freeze_twice_tells_of_the_first(replica: Replica) -> None:
    await order(replica, "freeze", why="first")

    answer = (await order(replica, "freeze", why="second")).json

    assert (answer["outcome"], answer["freeze"]["why"]) == ("ALREADY", "first")


# Release


async def release(replica: Replica, name: str = "default/u1", **fields: Any) -> tuple[int, str]:
    """The status, and the outcome or why not."""
    reply = await order(replica, "release", pod=name, **fields)
    return reply.status, reply.json["why"] if reply.status == 200 else reply.text.strip()


async def test_release_frees_a_hold_that_no_binding_follows(
    replica: Replica, cluster: ClusterDouble
) -> None:
    await replica.reserve(cluster.pod("u1"))

    assert await release(replica) == (200, "the cluster has it unbound")
    assert await replica.reserved() == (0, 0)
    assert await release(replica) == (200, "it holds nothing")


async def test_release_frees_what_a_bound_pod_has_left_behind(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("u1", node="n1")
    await replica.catch_up()
    cluster.delete("u1")

    answer = await release(replica)

    assert answer == (200, "the cluster has no pod of that name")
    assert (await replica.reserved(), await replica.where("u1")) == ((0, 0), "unknown")
    assert await replica.verify() == []


@pytest.mark.parametrize(
    ("now", "why"),
    [
        pytest.param({"phase": "Succeeded"}, "it is finished", id="finished"),
        pytest.param({"uid": "u2"}, "the cluster has another pod of that name", id="replaced"),
    ],
)
async def test_release_frees_a_pod_whose_end_the_cluster_shows(
    replica: Replica, cluster: ClusterDouble, now: dict[str, Any], why: str
) -> None:
    cluster.pod("u1", node="n1")
    await replica.catch_up()
    cluster.pod(**{"uid": "u1", "name": "u1", "node": "n1"} | now)

    assert await release(replica) == (200, why)
    assert await replica.where("u1") == "unknown"


async def test_release_never_frees_what_is_bound_and_not_finished(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Held in the ledger, bound by somebody else in the cluster; and bound in both."""
    await replica.reserve(cluster.pod("u1"))
    cluster.pod("u1", node="n2")
    cluster.pod("u2", node="n1")
    await replica.catch_up()
    before = await replica.dump()

    held, bound = await release(replica), await release(replica, "default/u2")

    assert held == (
        409,
        "pod default/u1 keeps what it holds: the cluster has it bound to n2 and not finished",
    )
    assert bound[0] == 409
    assert await replica.dump() == before


async def test_release_of_a_binding_shuts_out_what_is_on_its_way(
    replica: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u1")
    await replica.filter(pod)
    cluster.answers_bind(cluster.delayed)
    cluster.down.add("read_pod")
    await replica.bind(pod)
    cluster.down.clear()
    assert await replica.where("u1") == "binding n1"

    answer = await release(replica)

    assert answer == (200, "the cluster has it unbound")
    assert cluster.land() != ["created"]
    assert (cluster.where("u1"), await replica.where("u1")) == (None, "pending -")


async def test_release_without_a_live_read_releases_nothing(
    replica: Replica, cluster: ClusterDouble
) -> None:
    await replica.reserve(cluster.pod("u1"))
    cluster.down.add("read_pod")
    before = await replica.dump()

    status, _ = await release(replica)

    assert status == 503
    assert await replica.dump() == before


async def test_release_of_what_the_cluster_has_unbound_by_now_asks_for_a_compare(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """The API went back: what the ledger knows is newer than what it is told."""
    cluster.pod("u1", node="n1")
    await replica.catch_up()
    cluster.pod("u1")

    status, words = await release(replica)

    assert status == 409
    assert "ask for a compare" in words


async def test_release_knows_no_such_pod(replica: Replica) -> None:
    assert await release(replica) == (404, "pod default/u1 is not known")


# Reconcile


async def test_reconcile_at_any_replica_is_done_by_the_leader(
    replica: Replica, start: StartReplica, cluster: ClusterDouble, token_file: Path
) -> None:
    other = await start(name="r2", admin_token_file=token_file)
    cluster.pod("u1", node="n1")
    await replica.lead()
    unseen = await replica.where("u1")

    asked = (await order(other, "reconcile")).json["request"]
    waiting = await read(other, "/api/v1/reconcile")
    await replica.lead()
    done = await read(other, "/api/v1/reconcile")

    assert (unseen, await replica.where("u1")) == ("unknown", "bound n1")
    assert (waiting["asked"], waiting["done"]) == (asked, "0")
    assert (done["done"], done["replica"]) == (asked, "r1")


async def test_reconcile_once_compares_once(replica: Replica, cluster: ClusterDouble) -> None:
    await order(replica, "reconcile")
    await replica.lead()
    before = cluster.calls["list_pods"]

    await replica.lead()

    assert cluster.calls["list_pods"] == before


async def test_reconcile_is_answered_by_a_build_too(replica: Replica) -> None:
    asked = (await order(replica, "reconcile")).json["request"]
    await replica.raw.hdel("ae:{default}:meta", "epoch")

    await replica.lead()

    assert (await read(replica, "/api/v1/reconcile"))["done"] == asked


async def test_dry_reconcile_shows_what_differs_and_books_nothing(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("u1", node="n1", cpu="2")
    cluster.node("n2", cpu="4", mem="1Gi")
    before = await replica.dump()

    answer = (await order(replica, "reconcile", dryRun=True, why="")).json

    assert [(each["kind"], each["name"], each["ledger"]) for each in answer["differences"]] == [
        ("node", "n2", "nothing"),
        ("pod", "default/u1", "nothing"),
    ]
    assert answer["differences"][1]["cluster"].startswith("bound on n1, 2000m and 1073741824 bytes")
    assert await replica.dump() == before
    await replica.catch_up()
    assert (await order(replica, "reconcile", dryRun=True)).json["differences"] == []


# All of them


@pytest.mark.parametrize(
    ("what", "about"),
    [
        *(("freeze", {}), ("freeze", {"node": "n1"}), ("thaw", {}), ("thaw", {"node": "n1"})),
        *(("release", {"pod": "default/u1"}), ("release", {"pod": "default/u2"})),
        ("release", {"pod": "default/u3"}),
    ],
)
async def test_dry_run_says_the_same_and_changes_nothing(
    replica: Replica, cluster: ClusterDouble, what: str, about: dict[str, str]
) -> None:
    cluster.pod("u2", node="n1")
    await replica.catch_up()
    cluster.delete("u2")
    await replica.reserve(cluster.pod("u1"))
    await replica.filter(pod := cluster.pod("u3"))
    cluster.answers_bind(never_arrives)
    cluster.down.add("read_pod")
    await replica.bind(pod)
    cluster.down.clear()
    if what == "thaw":
        await order(replica, "freeze", **about)
    before, version = await replica.dump(), cluster.pods.copy()

    dry = await order(replica, what, **about, dryRun=True, why="")
    unchanged = (await replica.dump(), cluster.pods) == (before, version)
    done = await order(replica, what, **about)

    assert unchanged
    assert (dry.json.pop("dryRun"), done.json.pop("dryRun")) == (True, False)
    assert dry.json | {"dryRun": 0} == done.json | {"dryRun": 0}
    assert await replica.dump() != before


async def test_order_needs_the_token(replica: Replica) -> None:
    before = await replica.dump()

    for what in ("freeze", "thaw", "release", "reconcile"):
        assert (await order(replica, what, token="other")).status == 401

    assert await replica.dump() == before


@pytest.mark.parametrize(
    ("what", "fields", "field"),
    [
        pytest.param("freeze", {"node": "a b"}, "node", id="no name"),
        pytest.param("freeze", {"node": 1}, "node", id="no text"),
        pytest.param("freeze", {"pod": "a/b"}, "pod", id="not about pods"),
        pytest.param("thaw", {"dry_run": True}, "dry_run", id="unknown field"),
        pytest.param("release", {}, "pod", id="no pod"),
        pytest.param("release", {"pod": "web-0"}, "pod", id="no namespace"),
        pytest.param("release", {"pod": "a/b/c"}, "pod", id="two slashes"),
        pytest.param("reconcile", {"node": "n1"}, "node", id="about everything"),
        pytest.param("freeze", {"why": " "}, "why", id="no reason"),
        pytest.param("freeze", {"why": "a\nb"}, "why", id="control character"),
        pytest.param("freeze", {"why": "a" * 501}, "why", id="long reason"),
        pytest.param("freeze", {"who": ""}, "who", id="nobody"),
        pytest.param("freeze", {"why": "a" * 9000}, "", id="long body"),
    ],
)
async def test_order_that_is_not_understood_changes_nothing(
    replica: Replica, what: str, fields: dict[str, Any], field: str
) -> None:
    before = await replica.dump()

    reply = await order(replica, what, **fields)

    assert reply.status == 400
    assert field in reply.text
    assert await replica.dump() == before


async def test_order_for_a_node_that_nobody_knows_is_404(replica: Replica) -> None:
    reply = await order(replica, "freeze", node="n9")

    assert (reply.status, reply.text) == (404, "node n9 is not known\n")
    assert (await order(replica, "thaw", node="n9")).json["outcome"] == "NOTHING"


async def test_release_beside_a_bind_that_goes_through_takes_nothing_from_it(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """The live read finds the pod unbound, the Binding lands before the release."""
    pod, gate = cluster.pod("u1"), Gate()
    await replica.reserve(pod)
    cluster.answers_bind(gate.passing)
    binding = asyncio.create_task(replica.bind(pod))
    await gate.arrived.wait()

    released = await release(replica)
    gate.open.set()

    assert released[0] == 200
    await binding
    assert cluster.where("u1") is None
    assert await replica.where("u1") == "pending -"
