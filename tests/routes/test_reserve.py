"""reserve and unreserve, for schedulers that have such steps of their own."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from autoscale_enforcer.config.scheduler_config import SchedulerConfig
from autoscale_enforcer.policy.fit import Reason
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, Gate, pod_json, runs_vm
from tests.support.replica import Replica

SUCCESS: tuple[str, list[str]] = ("Success", [])


def reference(uid: str, name: str = "") -> dict[str, str]:
    return {"Namespace": "default", "Name": name or uid, "UID": uid}


async def test_reserve_holds_room(replica: Replica, cluster: ClusterDouble) -> None:
    assert await replica.reserve(pod_json("u1", cpu="2")) == SUCCESS

    assert await replica.where("u1") == "held n1"
    assert await replica.reserved() == (2000, 1024)
    assert cluster.calls == {"list_nodes": 1, "list_pods": 1}  # of the build


async def test_reserve_again_counts_once_and_takes_newer_amounts(replica: Replica) -> None:
    await replica.reserve(pod_json("u1", cpu="2"))

    assert await replica.reserve(pod_json("u1", cpu="2")) == SUCCESS
    assert await replica.reserved() == (2000, 1024)
    assert await replica.reserve(pod_json("u1", cpu="3", rv="2")) == SUCCESS
    assert await replica.reserved() == (3000, 1024)


async def test_reserve_moves_a_hold_in_one_step(replica: Replica, cluster: ClusterDouble) -> None:
    cluster.node("n2")
    await replica.catch_up()
    await replica.reserve(pod_json("u1"))

    assert await replica.reserve(pod_json("u1"), "n2") == SUCCESS

    assert await replica.where("u1") == "held n2"
    assert await replica.reserved("n1") == (0, 0)


@pytest.mark.parametrize(
    ("pod", "node", "code", "reason"),
    [
        (pod_json("u1", cpu="8"), "n1", "Unschedulable", Reason.CPU),
        (pod_json("u1", mem="32Gi"), "n1", "Unschedulable", Reason.MEMORY),
        (pod_json("u1", cpu="8", mem="32Gi"), "n1", "Unschedulable", Reason.BOTH),
        (pod_json("u1"), "nowhere", "Unschedulable", Reason.UNKNOWN_NODE),
        (pod_json("u1", cpu="abc"), "n1", "UnschedulableAndUnresolvable", Reason.UNREADABLE),
        (
            pod_json("u1", metadata=runs_vm(annotations={})),
            "n1",
            "UnschedulableAndUnresolvable",
            Reason.UNREADABLE,
        ),
        (pod_json("bound"), "n2", "UnschedulableAndUnresolvable", Reason.ELSEWHERE),
        (pod_json("u1", name="bound"), "n1", "UnschedulableAndUnresolvable", Reason.GONE),
    ],
    ids=["cpu", "memory", "both", "node", "quantity", "vm", "elsewhere", "older-than-its-name"],
)
async def test_reserve_says_why_not_and_writes_nothing(
    replica: Replica, cluster: ClusterDouble, pod: dict[str, Any], node: str, code: str, reason: str
) -> None:
    cluster.node("n2")
    cluster.pod("bound", node="n1")
    await replica.catch_up()
    before = await replica.dump()

    assert await replica.reserve(pod, node) == (code, [reason])

    assert await replica.dump() == before


async def test_reserve_takes_a_reference_to_a_pod_that_the_ledger_knows(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("u1", cpu="2")
    await replica.catch_up()

    answer = await replica.post("reserve", Pod=reference("u1"), NodeName="n1")

    assert answer == {"Code": "Success", "Reasons": []}
    assert await replica.reserved() == (2000, 1024)


async def test_reserve_takes_a_reference_to_a_pod_that_it_was_sent_before(
    replica: Replica,
) -> None:
    await replica.filter(pod_json("u1", cpu="2"))

    answer = await replica.post("reserve", pod=reference("u1"), nodeName="n1")

    assert answer == {"Code": "Success", "Reasons": []}
    assert await replica.reserved() == (2000, 1024)


async def test_reserve_reads_a_pod_live_that_nobody_knows(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("u1", cpu="2")

    answer = await replica.post("reserve", Pod=reference("u1"), NodeName="n1")

    assert answer["Code"] == "Success"
    assert await replica.reserved() == (2000, 1024)


async def test_reserve_refuses_a_reference_to_nothing(replica: Replica) -> None:
    before = await replica.dump()

    answer = await replica.post("reserve", Pod=reference("u1"), NodeName="n1")

    assert answer == {"Code": "UnschedulableAndUnresolvable", "Reasons": [Reason.GONE]}
    assert await replica.dump() == before


async def test_reserve_says_busy_while_a_binding_to_another_node_is_under_way(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node("n2")
    await replica.catch_up()
    pod, gate = cluster.pod("u1"), Gate()
    cluster.answers_bind(gate.passing)
    bind = asyncio.ensure_future(replica.bind(pod))
    await gate.arrived.wait()

    assert await replica.reserve(pod, "n2") == ("Error", [Reason.ELSEWHERE])
    assert await replica.reserve(pod, "n1") == SUCCESS
    assert await replica.unreserve(pod, "n1") == SUCCESS  # and changes nothing

    gate.open.set()
    assert await bind == ""
    assert await replica.reserve(pod, "n1") == SUCCESS
    assert await replica.where("u1") == "bound n1"


async def test_reserve_replaces_the_hold_of_an_older_pod_of_the_name(replica: Replica) -> None:
    await replica.reserve(pod_json("u-old", name="web-0", cpu="6"))

    assert await replica.reserve(pod_json("u-new", name="web-0", cpu="6", rv="2")) == SUCCESS

    assert await replica.where("u-old") == "unknown"
    assert await replica.reserved() == (6000, 1024)


async def test_reserve_asks_the_cluster_who_has_the_name_of_a_bound_pod(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("u-old", name="web-0", node="n1")
    await replica.catch_up()
    claimed = pod_json("u-new", name="web-0", rv="900")

    assert await replica.reserve(claimed) == ("UnschedulableAndUnresolvable", [Reason.GONE])
    new = cluster.pod("u-new", name="web-0")
    assert await replica.reserve(new) == SUCCESS

    assert await replica.where("u-old") == "unknown"
    assert await replica.where("u-new") == "held n1"


async def test_reserve_holds_nothing_for_ignored_namespaces(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    replica = await start(config=SchedulerConfig(ignored_namespaces=frozenset({"fill"})))
    await replica.lead()

    assert await replica.reserve(pod_json("f1", namespace="fill", cpu="99")) == SUCCESS
    assert await replica.reserved() == (0, 0)


async def test_reserve_does_not_let_a_uid_change_its_name(replica: Replica) -> None:
    """The row took the new name, and the old one went on pointing to it: found by the fuzzer."""
    await replica.reserve(pod_json("u1", name="web-0"))

    assert await replica.reserve(pod_json("u1", name="web-1", cpu="2", rv="2")) == SUCCESS

    row = await replica.row("u1")
    assert row is not None
    assert (row.name, row.cpu) == ("default/web-0", 2000)
    assert await replica.verify() == []


async def test_unreserve_releases_once(replica: Replica) -> None:
    pod = pod_json("u1")
    await replica.reserve(pod)

    assert await replica.unreserve(pod) == SUCCESS
    assert await replica.reserved() == (0, 0)
    before = await replica.dump()
    assert await replica.unreserve(pod) == SUCCESS
    assert await replica.dump() == before


@pytest.mark.parametrize("node", ["n2", "nowhere"])
async def test_unreserve_leaves_other_nodes_alone(replica: Replica, node: str) -> None:
    pod = pod_json("u1")
    await replica.reserve(pod)
    before = await replica.dump()

    assert await replica.unreserve(pod, node) == SUCCESS
    assert await replica.unreserve(pod_json("u9")) == SUCCESS

    assert await replica.dump() == before


async def test_unreserve_takes_a_pod_that_cannot_be_read_any_more(replica: Replica) -> None:
    await replica.reserve(pod_json("u1"))

    assert await replica.unreserve(pod_json("u1", cpu="abc")) == SUCCESS
    assert await replica.reserved() == (0, 0)


async def test_unreserve_by_a_slow_clock_is_no_success_while_the_hold_stays(
    replica: Replica, start: StartReplica
) -> None:
    """It was told as done, and the hold stayed for as long as holds live."""
    slow = await start(name="r2")
    await replica.reserve(pod_json("u1"))
    await slow.ledger.look()
    slow.ledger.pipeline.exchange.redis_us -= 10_000_000  # its answer was long on its way

    assert await slow.unreserve(reference("u1")) == ("Error", [Reason.LATE])
    assert await replica.where("u1") == "held n1"
    await slow.ledger.look()
    assert await slow.unreserve(reference("u1")) == SUCCESS
    assert await replica.where("u1") == "pending -"


async def test_unreserve_takes_a_reference(replica: Replica) -> None:
    await replica.reserve(pod_json("u1"))

    answer = await replica.post("unreserve", Pod=reference("u1"), NodeName="n1")

    assert answer == {"Code": "Success", "Reasons": []}
    assert await replica.reserved() == (0, 0)


@pytest.mark.parametrize("verb", ["reserve", "unreserve"])
async def test_both_answer_code_error_for_trouble_of_ours(
    orphan: Replica, start: StartReplica, verb: str
) -> None:
    unbuilt = await start()

    lost = await orphan.post(verb, Pod=pod_json("u1"), NodeName="n1")
    early = await unbuilt.post(verb, Pod=pod_json("u1"), NodeName="n1")

    assert lost["Code"] == "Error"
    assert lost["Reasons"][0].startswith("Redis cannot be reached")
    assert early == {"Code": "Error", "Reasons": ["the ledger is not built"]}


async def test_reserve_answers_error_while_the_cluster_is_needed_and_away(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.down = {"read_pod"}

    answer = await replica.post("reserve", Pod=reference("u1"), NodeName="n1")

    assert answer["Code"] == "Error"


async def test_reserve_answers_error_while_the_node_is_not_settled(start: StartReplica) -> None:
    replica = await start(settle_after=timedelta(hours=1))
    await replica.lead()
    await replica.loses_its_primary()

    assert await replica.reserve(pod_json("u1")) == ("Error", [Reason.UNSETTLED])


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"NodeName": "n1"}, "Pod"),
        ({"Pod": None, "NodeName": "n1"}, "Pod"),
        ({"Pod": pod_json("u1")}, "NodeName"),
        ({"Pod": pod_json("u1"), "NodeName": ""}, "NodeName"),
        ({"Pod": pod_json("u1"), "NodeName": "a b"}, "NodeName"),
        ({"Pod": {"Name": "u1", "UID": "u1"}, "NodeName": "n1"}, "Pod.Namespace"),
        ({"Pod": {"Namespace": "x", "Name": "a/b", "UID": "u"}, "NodeName": "n1"}, "Pod.Name"),
        (
            {"Pod": {"metadata": {"namespace": "x", "name": "y"}}, "NodeName": "n"},
            "Pod.metadata.uid",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["reserve", "unreserve"])
async def test_both_name_the_field_that_is_wrong(
    replica: Replica, verb: str, body: dict[str, Any], path: str
) -> None:
    before = await replica.dump()

    reply = await replica.send("extender", f"/extender/{verb}", body)

    assert (reply.status, reply.kind) == (400, "text/plain")
    assert reply.text.startswith(f"{path}: ")
    assert await replica.dump() == before
