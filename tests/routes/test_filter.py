"""filter: both node modes, each reason, and the pod's own hold."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from autoscale_enforcer.policy.fit import Reason
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, pod_json, runs_vm, vm_resources
from tests.support.replica import Filtered, Replica

HOUR = timedelta(hours=1)
WHOLE = {"metadata": {"name": "n1", "x": 1.50}, "spec": {"a": [None, {}]}, "kind": "Node"}


async def test_filter_answers_names_in_the_order_they_came(
    replica: Replica, cluster: ClusterDouble
) -> None:
    for name in ("n2", "n3", "n4"):
        cluster.node(name)
    await replica.catch_up()

    answer = await replica.filter(pod_json("u1"), "n3", "n1", "n4", "n3", "n2")

    assert answer.passed == ["n3", "n1", "n4", "n2"]


async def test_filter_answers_whole_nodes_byte_for_byte(replica: Replica) -> None:
    node = '{"kind": "Node" ,"metadata":{"name":"n1","x":1.50,"y":1e400}, "s":"\\u00e9"}'
    other = node.replace('"n1"', '"n2"')
    pod = json.dumps(pod_json("u1"))
    body = '{"Pod":%s,"Nodes":{"metadata":{"a":1},"items":[%s,%s]},"NodeNames":null}'

    reply = await replica.send("extender", "/extender/filter", body % (pod, other, node))

    assert f'"Nodes":{{"metadata":{{"a":1}},"items":[{node}]}}' in reply.text
    assert reply.json["NodeNames"] is None
    assert list(reply.json["FailedNodes"]) == ["n2"]


@pytest.mark.parametrize(
    "offered",
    [
        {"nodenames": ["n1"]},
        {"NODENAMES": ["n1"], "NODES": None},
        {"nodes": {"ITEMS": [WHOLE]}},
        {"nodes": {"items": [WHOLE]}, "nodeNames": []},
    ],
)
async def test_filter_takes_keys_in_any_case_and_answers_in_one(
    replica: Replica, offered: dict[str, Any]
) -> None:
    answer = await replica.post("filter", pod=pod_json("u1"), **offered)

    assert list(answer) == [
        "Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error",
    ]  # fmt: skip
    assert answer["NodeNames"] == ["n1"] or answer["Nodes"]["items"] == [WHOLE]


@pytest.mark.parametrize("offered", [{"NodeNames": []}, {"Nodes": {"items": []}}])
async def test_filter_answers_nothing_to_nothing(replica: Replica, offered: dict[str, Any]) -> None:
    answer = await replica.post("filter", Pod=pod_json("u1"), **offered)

    assert Filtered.of(answer) == Filtered([], {}, {}, "")


@pytest.mark.parametrize(
    ("cpu", "mem", "reason"),
    [
        ("3001m", "8Gi", Reason.CPU),
        ("3", "8193Mi", Reason.MEMORY),
        ("3001m", "8193Mi", Reason.BOTH),
    ],
)
async def test_filter_says_what_is_short(
    replica: Replica, cluster: ClusterDouble, cpu: str, mem: str, reason: Reason
) -> None:
    cluster.pod("u0", cpu="5", mem="24Gi", node="n1")
    await replica.catch_up()

    answer = await replica.filter(pod_json("u1", cpu=cpu, mem=mem))

    assert answer == Filtered([], {"n1": str(reason)}, {}, "")


async def test_filter_passes_what_fills_the_node_exactly(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("u0", cpu="5", mem="24Gi", node="n1")
    await replica.catch_up()

    assert (await replica.filter(pod_json("u1", cpu="3", mem="8Gi"))).passed == ["n1"]


async def test_filter_does_not_judge_what_is_not_asked(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """A pod without a memory request stood outside a node that facts had brought over memory."""
    cluster.pod("u0", cpu="1", mem="33Gi", node="n1")
    await replica.catch_up()

    assert (await replica.filter(pod_json("u1", cpu="7", mem="0"))).passed == ["n1"]
    assert (await replica.filter(pod_json("u2", cpu="7", mem="1"))).failed == {"n1": Reason.MEMORY}


async def test_filter_calls_a_node_too_small_for_ever_unresolvable(replica: Replica) -> None:
    answer = await replica.filter(pod_json("u1", cpu="8001m"), "n1", "nowhere")

    assert answer.unresolvable == {"n1": Reason.TOO_SMALL}
    assert answer.failed == {"nowhere": Reason.UNKNOWN_NODE}


@pytest.mark.parametrize(
    "pod",
    [
        pod_json("u1", cpu="abc"),
        pod_json("u1", rv="not a version"),
        pod_json("u1", node="n 1"),
        pod_json("u1", metadata=runs_vm(annotations={})),
        pod_json("u1", metadata=runs_vm(annotations={"vm.neon.tech/resources": "{"})),
    ],
    ids=["quantity", "version", "node", "no-annotation", "broken-annotation"],
)
async def test_filter_refuses_everywhere_what_it_cannot_read(
    replica: Replica, pod: dict[str, Any]
) -> None:
    answer = await replica.filter(pod, "n1", "n2")

    assert answer == Filtered([], {}, dict.fromkeys(["n1", "n2"], Reason.UNREADABLE), "")


async def test_filter_does_not_count_a_pods_own_hold_against_it(replica: Replica) -> None:
    pod = pod_json("u1", cpu="6")
    await replica.reserve(pod)

    assert (await replica.filter(pod)).passed == ["n1"]
    assert (await replica.filter(pod_json("u2", cpu="6"))).failed == {"n1": Reason.CPU}


async def test_filter_passes_a_bound_pod_on_its_own_node_only(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """A full node parked a pod for minutes that was already bound to it."""
    cluster.node("n2")
    pod = cluster.pod("u1", cpu="8", node="n1")
    await replica.catch_up()

    answer = await replica.filter(pod, "n1", "n2")

    assert answer == Filtered(["n1"], {"n2": Reason.ELSEWHERE}, {}, "")


async def test_filter_answers_an_error_where_the_pods_own_node_is_not_offered(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node("n2")
    pod = cluster.pod("u1", node="n1")
    await replica.catch_up()

    answer = await replica.filter(pod, "n2")

    assert answer == Filtered([], {}, {}, f"{Reason.ELSEWHERE}: n1")


async def test_filter_judges_the_newer_of_what_was_sent_and_what_is_known(
    replica: Replica, cluster: ClusterDouble
) -> None:
    known = cluster.pod("u1", cpu="9")
    await replica.catch_up()
    version = int(known["metadata"]["resourceVersion"])

    older = await replica.filter(pod_json("u1", cpu="1", rv=str(version - 1)))
    newer = await replica.filter(pod_json("u1", cpu="1", rv=str(version + 1)))

    assert older.unresolvable == {"n1": Reason.TOO_SMALL}
    assert newer.passed == ["n1"]


async def test_filter_sees_what_another_replica_holds_at_once(
    replica: Replica, start: StartReplica
) -> None:
    """Field report 31: each replica limited from its own memory."""
    other = await start(name="r2")
    await other.filter(pod_json("u9"))

    await replica.reserve(pod_json("u1", cpu="5"))

    assert (await other.filter(pod_json("u2", cpu="4"))).failed == {"n1": Reason.CPU}


async def test_filter_sees_an_overcommitted_vm_at_its_discount(replica: Replica) -> None:
    def vm(uid: str) -> dict[str, Any]:
        metadata = runs_vm("8", 8)
        metadata["annotations"]["vm.neon.tech/overcommit"] = '{"cpu": 2}'
        return pod_json(uid, metadata=metadata)

    for uid in ("u1", "u2"):
        assert (await replica.reserve(vm(uid)))[0] == "Success"

    assert (await replica.filter(vm("u3"))).failed == {"n1": Reason.CPU}
    assert await replica.reserved() == (8000, 16 << 10)


async def test_filter_answers_an_error_while_the_ledger_is_unbuilt(start: StartReplica) -> None:
    replica = await start()

    answer = await replica.filter(pod_json("u1"))

    assert answer == Filtered([], {}, {}, "the ledger is not built")


async def test_filter_answers_an_error_while_redis_is_away(orphan: Replica) -> None:
    answer = await orphan.filter(pod_json("u1"))

    assert answer.error.startswith("Redis cannot be reached")


async def test_filter_answers_an_error_while_no_node_is_settled(
    replica: Replica, cluster: ClusterDouble
) -> None:
    await replica.loses_its_primary()

    answer = await replica.filter(pod_json("u1"))

    assert answer == Filtered([], {}, {}, Reason.UNSETTLED)


async def test_filter_leaves_out_nodes_that_wait_for_their_vms(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    replica = await start(settle_after=HOUR)
    cluster.node("n2")
    cluster.pod("vm-1", metadata=runs_vm(), node="n1")
    await replica.lead()

    both = await replica.filter(pod_json("u1"), "n1", "n2")
    one = await replica.filter(pod_json("u1"), "n1")

    assert both == Filtered(["n2"], {"n1": Reason.UNSETTLED}, {}, "")
    assert one.error == Reason.UNSETTLED


async def test_filter_passes_a_waiting_node_again_once_its_vms_have_asked(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    replica = await start(settle_after=HOUR)
    cluster.pod("vm-1", metadata=runs_vm(), node="n1")
    await replica.lead()

    await replica.permit("vm-1", 1, "1Gi")

    assert (await replica.filter(pod_json("u1"))).passed == ["n1"]


async def test_filter_reads_a_node_that_it_does_not_know(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node("n-new")

    answer = await replica.filter(pod_json("u1", cpu="8"), "n1", "n-new", "nowhere")

    assert answer == Filtered(["n1", "n-new"], {"nowhere": Reason.UNKNOWN_NODE}, {}, "")


async def test_filter_judges_a_node_that_may_be_added_by_what_the_request_says_of_it(
    replica: Replica,
) -> None:
    def node(name: str, cpu: str) -> dict[str, Any]:
        allocatable = {"cpu": cpu, "memory": "64Gi"}
        return {"metadata": {"name": name}, "status": {"allocatable": allocatable}}

    nodes = [node("template-large", "64"), node("template-small", "4"), node("n1", "64")]
    answer = await replica.post("filter", Pod=pod_json("u1", cpu="32"), Nodes={"items": nodes})

    assert answer["Nodes"]["items"] == nodes[:1]
    assert answer["FailedAndUnresolvableNodes"] == {
        "template-small": Reason.TOO_SMALL,
        "n1": Reason.TOO_SMALL,
    }


async def test_filter_needs_no_cluster(replica: Replica, cluster: ClusterDouble) -> None:
    cluster.down = {"read_pod", "pods_on", "bind", "list_nodes", "list_pods"}

    assert (await replica.filter(pod_json("u1"))).passed == ["n1"]


async def test_filter_answers_an_error_where_a_vm_object_cannot_be_read(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.down = {"virtual_machine"}

    answer = await replica.filter(pod_json("u1", metadata=runs_vm(annotations={})))

    assert answer == Filtered([], {}, {}, "the API cannot be reached: virtual_machine")


async def test_filter_takes_a_vms_data_from_its_object_where_the_pod_has_none(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.vm("vm-a", vm_resources("9", 1, most=("9", 1)))

    answer = await replica.filter(pod_json("u1", cpu="1", metadata=runs_vm(annotations={})))

    assert answer.unresolvable == {"n1": Reason.TOO_SMALL}
