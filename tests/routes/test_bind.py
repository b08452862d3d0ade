"""bind: room first, then one Binding, then what a live read says; never by guessing."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from autoscale_enforcer.api.extender.bind import answer_bind
from autoscale_enforcer.config.scheduler_config import SchedulerConfig
from autoscale_enforcer.policy.fit import Reason
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import (
    BindAnswer,
    ClusterDouble,
    Gate,
    after,
    is_refused,
    never_arrives,
    pod_json,
    reply_lost,
)
from tests.support.replica import Replica, bind_args, until

BY_NOW = timedelta(milliseconds=1)
"""The lifetime of holds that have lapsed by the time a sweep looks."""


async def test_bind_costs_one_binding_and_no_read(replica: Replica, cluster: ClusterDouble) -> None:
    pod = cluster.pod("u1", cpu="2")
    await replica.filter(pod)
    cluster.calls.clear()

    error = await replica.bind(pod)

    assert error == ""
    assert cluster.calls == {"bind": 1}
    assert cluster.sent == [("u1", "n1", pod["metadata"]["resourceVersion"])]
    assert await replica.where("u1") == "bound n1"
    assert await replica.reserved() == (2000, 1024)


async def test_bind_takes_what_the_pod_needs_from_the_ledger(
    replica: Replica, cluster: ClusterDouble, start: StartReplica
) -> None:
    """kube-scheduler's bind often reaches another replica than its filter did."""
    pod = cluster.pod("u1", cpu="2")
    await replica.catch_up()
    other = await start(name="r2")
    cluster.calls.clear()

    assert await other.bind(pod) == ""

    assert cluster.calls == {"bind": 1}
    assert await replica.reserved() == (2000, 1024)


async def test_bind_reads_the_pod_live_where_nobody_has_heard_of_it(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Field report 2 b: bind failed because the local cache had not seen the pod yet."""
    pod = cluster.pod("u1", cpu="2")
    cluster.calls.clear()

    assert await replica.bind(pod) == ""

    assert cluster.calls == {"read_pod": 1, "bind": 1}
    assert cluster.sent == [("u1", "n1", pod["metadata"]["resourceVersion"])]
    assert await replica.reserved() == (2000, 1024)


async def test_bind_refuses_a_pod_that_nobody_has(replica: Replica, cluster: ClusterDouble) -> None:
    before = await replica.dump()

    error = await replica.bind(pod_json("u1"))

    assert error == Reason.GONE
    assert cluster.sent == []
    assert await replica.dump() == before


async def test_bind_again_to_the_same_node_sends_nothing(
    replica: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u1")
    await replica.bind(pod)
    before = await replica.dump()

    assert await replica.bind(pod) == ""

    assert len(cluster.sent) == 1
    assert await replica.dump() == before


async def test_bind_refuses_another_node_once_bound(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node("n2")
    await replica.catch_up()
    pod = cluster.pod("u1")
    await replica.bind(pod)

    assert await replica.bind(pod, "n2") == Reason.ELSEWHERE

    assert len(cluster.sent) == 1
    assert await replica.where("u1") == "bound n1"
    assert (await replica.node("n2")).pods == 0


async def test_bind_says_what_is_short_and_sends_nothing(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("u0", cpu="5", node="n1")
    await replica.catch_up()
    pod = cluster.pod("u1", cpu="4")
    await replica.filter(pod)
    before = await replica.dump()

    assert await replica.bind(pod) == Reason.CPU
    assert await replica.bind(pod, "nowhere") == Reason.UNKNOWN_NODE

    assert cluster.sent == []
    assert await replica.dump() == before


async def test_bind_does_not_let_a_lost_answer_undo_a_binding(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Field report 1: the Binding took effect, its answer was lost, the hold was dropped."""
    pod = cluster.pod("u1")
    await replica.filter(pod)
    cluster.answers_bind(reply_lost)

    assert await replica.bind(pod) == ""

    assert cluster.where("u1") == "n1"
    assert await replica.where("u1") == "bound n1"
    assert len(cluster.sent) == 1


@pytest.mark.parametrize("answer", [never_arrives, is_refused])
async def test_bind_gives_the_room_back_once_no_binding_can_arrive_any_more(
    replica: Replica, cluster: ClusterDouble, answer: BindAnswer
) -> None:
    pod = cluster.pod("u1")
    await replica.filter(pod)
    cluster.calls.clear()
    cluster.answers_bind(answer)

    assert await replica.bind(pod) == "the Binding was refused"

    assert cluster.calls == {"bind": 1, "read_pod": 1, "outdate_bindings": 1}
    assert await replica.where("u1") == "pending -"
    assert await replica.reserved() == (0, 0)


async def test_bind_shuts_out_a_binding_that_comes_late(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """A Binding sent before the hold was given up landed after it: bound without a hold."""
    pod = cluster.pod("u1")
    await replica.filter(pod)
    cluster.answers_bind(cluster.delayed)
    await replica.bind(pod)

    landed = cluster.land()

    assert landed == ["other version"]
    assert cluster.where("u1") is None
    assert await replica.reserved() == (0, 0)


async def test_bind_finds_a_binding_that_lands_while_it_is_shut_out(
    replica: Replica, cluster: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = cluster.pod("u1")
    await replica.filter(pod)
    cluster.answers_bind(cluster.delayed)
    outdate = cluster.outdate_bindings

    async def land_first(fact: Any) -> Any:
        cluster.land()
        return await outdate(fact)

    monkeypatch.setattr(cluster, "outdate_bindings", land_first)

    assert await replica.bind(pod) == ""
    assert await replica.where("u1") == "bound n1"


async def test_bind_sends_once_more_where_only_the_version_had_changed(
    replica: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u1", cpu="2")
    await replica.filter(pod)
    cluster.pod("u1", cpu="3")

    assert await replica.bind(pod) == ""

    assert [version for _, _, version in cluster.sent] == [
        pod["metadata"]["resourceVersion"],
        str(int(pod["metadata"]["resourceVersion"]) + 1),
    ]
    assert await replica.reserved() == (3000, 1024)  # what the newer version asks for


async def test_bind_is_refused_where_the_newer_version_does_not_fit(
    replica: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u1", cpu="2")
    await replica.filter(pod)
    cluster.pod("u1", cpu="9")

    assert await replica.bind(pod) == "the Binding was refused"

    assert len(cluster.sent) == 1
    assert await replica.reserved() == (0, 0)


async def test_bind_gives_up_where_the_version_keeps_changing(
    replica: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u1")
    await replica.filter(pod)
    touch = after(lambda: cluster.touch("u1"))
    cluster.answers_bind(touch, touch, touch)

    assert await replica.bind(pod) == "the Binding was refused"

    assert len(cluster.sent) == 2
    assert await replica.where("u1") == "pending -"


async def test_bind_moves_the_hold_where_the_pod_is_bound_to_another_node(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node("n2")
    await replica.catch_up()
    pod = cluster.pod("u1")
    await replica.filter(pod)
    cluster.pod("u1", node="n2")

    assert await replica.bind(pod) == "the pod is bound to another node"

    assert await replica.where("u1") == "bound n2"
    assert await replica.reserved("n1") == (0, 0)
    assert await replica.reserved("n2") == (1000, 1024)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_bind_gives_up_a_pod_that_has_finished(
    replica: Replica, cluster: ClusterDouble, phase: str
) -> None:
    pod = cluster.pod("u1")
    await replica.filter(pod)
    cluster.pod("u1", node="n1", phase=phase)

    assert await replica.bind(pod) == "the pod is gone"
    assert await replica.reserved() == (0, 0)


async def test_bind_gives_up_a_pod_that_is_being_deleted(
    replica: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u1")
    await replica.filter(pod)
    cluster.pod("u1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    cluster.calls.clear()

    assert await replica.bind(pod) == "the Binding was refused"

    assert "outdate_bindings" not in cluster.calls
    assert await replica.reserved() == (0, 0)


async def test_bind_keeps_the_hold_while_the_api_gives_no_answer(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    replica = await start(hold_lifetime=BY_NOW)
    await replica.lead()
    pod = cluster.pod("u1")
    await replica.filter(pod)
    cluster.answers_bind(reply_lost)
    cluster.down = {"read_pod"}

    error = await replica.bind(pod)
    await replica.sweep()

    assert error == "the API cannot be reached: read_pod"
    assert await replica.where("u1") == "binding n1"
    cluster.down = set()
    await replica.sweep()
    assert await replica.where("u1") == "bound n1"


async def test_a_sweep_settles_a_bind_that_did_not_happen(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    replica = await start(hold_lifetime=BY_NOW)
    await replica.lead()
    pod = cluster.pod("u1")
    await replica.filter(pod)
    cluster.answers_bind(cluster.delayed)
    cluster.down = {"outdate_bindings"}
    await replica.bind(pod)
    cluster.down = set()

    await replica.sweep()

    assert cluster.land() == ["other version"]
    assert await replica.where("u1") == "pending -"


async def test_bind_is_not_bound_twice_when_kube_scheduler_gives_one_up(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """kube-scheduler abandons a slow bind and sends others for other nodes while it runs."""
    cluster.node("n2")
    await replica.catch_up()
    pod = cluster.pod("u1")
    gate = Gate()
    cluster.answers_bind(gate.passing)
    first = asyncio.ensure_future(replica.bind(pod))
    await gate.arrived.wait()

    others = await asyncio.gather(*(replica.bind(pod, "n2") for _ in range(5)))
    gate.open.set()

    assert others == [Reason.ELSEWHERE] * 5
    assert await first == ""
    assert await replica.where("u1") == "bound n1"
    assert (await replica.node("n2")).pods == 0


@pytest.mark.parametrize("ends", ["passing", "losing"])
async def test_bind_is_taken_over_by_a_newer_call_for_the_same_node(
    replica: Replica, cluster: ClusterDouble, ends: str
) -> None:
    pod = cluster.pod("u1")
    gate = Gate()
    cluster.answers_bind(getattr(gate, ends))
    first = asyncio.ensure_future(replica.bind(pod))
    await gate.arrived.wait()

    second = await replica.bind(pod)
    gate.open.set()

    assert (await first, second) == ("", "")
    assert len(cluster.sent) == 2
    assert await replica.where("u1") == "bound n1"
    assert await replica.reserved() == (1000, 1024)


async def test_bind_leaves_the_hold_to_the_call_that_took_it_over(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """The first call was refused and released the room on which the second had sent its Binding."""
    pod = cluster.pod("u1")
    first_gate, second_gate = Gate(), Gate()
    cluster.answers_bind(first_gate.losing, second_gate.passing)
    first = asyncio.ensure_future(replica.bind(pod))
    await first_gate.arrived.wait()
    second = asyncio.ensure_future(replica.bind(pod))
    await second_gate.arrived.wait()

    cluster.touch("u1")
    first_gate.open.set()
    assert await first == "the Binding was refused"

    assert await replica.where("u1") == "binding n1"
    second_gate.open.set()
    assert await second == ""  # its version was outdated by the first: sent once more
    assert await replica.where("u1") == "bound n1"


async def test_many_binds_of_one_pod_end_with_one_binding(
    replica: Replica, cluster: ClusterDouble, start: StartReplica
) -> None:
    nodes = [f"n{i}" for i in range(1, 6)]
    for name in nodes:
        cluster.node(name)
    await replica.catch_up()
    other = await start(name="r2")
    pod = cluster.pod("u1")
    cluster.answers_bind(reply_lost, never_arrives, is_refused)

    calls = [each.bind(pod, node) for node in nodes for each in (replica, other)]
    await asyncio.gather(*calls)

    bound = cluster.where("u1")
    assert await replica.where("u1") == (f"bound {bound}" if bound else "pending -")
    assert sum([(await replica.node(name)).pods for name in nodes]) == bool(bound)
    assert await replica.verify() == []


async def test_a_caller_that_hangs_up_changes_nothing(
    replica: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u1")
    gate = Gate()
    cluster.answers_bind(gate.passing)
    call = asyncio.ensure_future(replica.bind(pod))
    await gate.arrived.wait()

    call.cancel()
    await asyncio.wait([call])
    gate.open.set()

    async def is_bound() -> bool:
        return await replica.where("u1") == "bound n1"

    await until(is_bound)
    assert cluster.where("u1") == "n1"


@pytest.mark.parametrize("ends", ["passing", "losing"])
async def test_a_bind_whose_handler_is_cancelled_goes_on(
    replica: Replica, cluster: ClusterDouble, ends: str
) -> None:
    """Field report 26: hang-up in mid-bind, whatever the server's cancellation setting."""
    pod, gate = cluster.pod("u1"), Gate()
    cluster.answers_bind(getattr(gate, ends))
    body = json.dumps(bind_args(pod)).encode()
    handler = asyncio.ensure_future(answer_bind(replica.desk, body))
    await gate.arrived.wait()

    handler.cancel()
    await asyncio.wait([handler])
    gate.open.set()
    await asyncio.wait(replica.desk._running)

    assert handler.cancelled()
    assert await replica.where("u1") == "bound n1"


async def test_a_bind_that_nobody_waits_for_says_in_one_line_why_it_failed(
    replica: Replica, cluster: ClusterDouble, caplog: pytest.LogCaptureFixture
) -> None:
    pod, gate = cluster.pod("u1"), Gate()
    cluster.answers_bind(gate.losing)
    await replica.filter(pod)
    cluster.down = {"read_pod"}
    body = json.dumps(bind_args(pod)).encode()
    handler = asyncio.ensure_future(answer_bind(replica.desk, body))
    await gate.arrived.wait()

    handler.cancel()
    await asyncio.wait([handler])
    gate.open.set()
    await asyncio.wait(replica.desk._running)

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the API cannot be reached: read_pod" in caplog.text


async def test_bind_binds_pods_of_ignored_namespaces_without_a_hold(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    """Field report 20 e: fillers vanished everywhere or blocked everything."""
    replica = await start(config=SchedulerConfig(ignored_namespaces=frozenset({"fill"})))
    await replica.lead()
    filler = cluster.pod("f1", namespace="fill", cpu="6")

    assert await replica.bind(filler) == ""

    node = await replica.node()
    assert (node.reserved.cpu, node.ignored.cpu, node.pods) == (0, 6000, 1)
    assert await replica.bind(filler) == ""
    assert len(cluster.sent) == 1


async def test_bind_asks_the_cluster_who_has_a_name(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """A StatefulSet's next pod came before the deletion of the last was heard of."""
    cluster.pod("u-old", name="web-0", node="n1", cpu="6")
    await replica.catch_up()
    new = cluster.pod("u-new", name="web-0", cpu="6")

    assert await replica.bind(new) == ""

    assert await replica.where("u-old") == "unknown"
    assert await replica.reserved() == (6000, 1024)


async def test_bind_refuses_a_name_that_another_pod_has(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Field report 2 a: bind went by name and hit another pod that had taken it."""
    old = pod_json("u-old", name="web-0", rv="50")
    await replica.filter(old)
    cluster.pod("u-new", name="web-0")

    assert await replica.bind(old) == "the pod is gone"

    assert [uid for uid, _, _ in cluster.sent] == ["u-old"]  # the Binding names the UID
    assert cluster.where("web-0") is None
    assert (await replica.where("u-old"), await replica.where("u-new")) == ("pending -", "unknown")


async def test_bind_answers_an_error_while_redis_is_away(
    orphan: Replica, cluster: ClusterDouble
) -> None:
    assert (await orphan.bind(cluster.pod("u1"))).startswith("Redis cannot be reached")
    assert cluster.sent == []


async def test_bind_answers_an_error_while_the_ledger_is_unbuilt(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    replica = await start()

    assert await replica.bind(cluster.pod("u1")) == "the ledger is not built"
    assert cluster.sent == []


async def test_bind_answers_an_error_while_the_node_is_not_settled(
    replica: Replica, cluster: ClusterDouble
) -> None:
    await replica.loses_its_primary()

    assert await replica.bind(cluster.pod("u1")) == Reason.UNSETTLED
    assert cluster.sent == []


@pytest.mark.parametrize("missing", ["PodName", "PodNamespace", "PodUID", "Node"])
async def test_bind_needs_each_of_its_fields(replica: Replica, missing: str) -> None:
    before = await replica.dump()
    body = bind_args(pod_json("u1"))
    del body[missing]

    reply = await replica.send("extender", "/extender/bind", body)

    assert (reply.status, reply.text) == (400, f"{missing}: is required\n")
    assert await replica.dump() == before


async def test_bind_takes_keys_in_any_case(replica: Replica, cluster: ClusterDouble) -> None:
    lower = {key.lower(): value for key, value in bind_args(cluster.pod("u1")).items()}

    assert await replica.post("bind", **lower) == {"Error": ""}
