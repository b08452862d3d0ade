"""Rows of the field reports with area extender (and 29), through the real door."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from autoscale_enforcer.config.scheduler_config import NodeConfig, SchedulerConfig
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.policy.fit import Reason
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, Gate, Json, is_refused, pod_json, runs_vm
from tests.support.replica import Filtered, Replica, bind_args

RANDOM = SchedulerConfig(randomize_scores=True)


@pytest.fixture
async def two_nodes(replica: Replica, cluster: ClusterDouble) -> Replica:
    cluster.node("n2")
    await replica.catch_up()
    return replica


@pytest.mark.parametrize("hangs_up", [False, True], ids=["waits", "hangs-up"])
async def test_row_01_a_bind_whose_answer_is_lost_is_bound(
    two_nodes: Replica, cluster: ClusterDouble, hangs_up: bool
) -> None:
    """The scheduler retried for ever, or the hold was dropped from a pod that really ran."""
    pod, gate = cluster.pod("u1"), Gate()
    await two_nodes.filter(pod, "n1", "n2")
    cluster.answers_bind(gate.losing)
    first = asyncio.ensure_future(two_nodes.bind(pod))
    await gate.arrived.wait()
    if hangs_up:
        first.cancel()
    gate.open.set()
    await asyncio.wait([first, *two_nodes.desk._running])

    answers = [
        await two_nodes.filter(pod, "n1", "n2"),
        await two_nodes.bind(pod, "n1"),
        await two_nodes.bind(pod, "n2"),
    ]

    assert hangs_up or first.result() == ""
    elsewhere = Filtered(["n1"], {"n2": Reason.ELSEWHERE}, {}, "")
    assert answers == [elsewhere, "", Reason.ELSEWHERE]
    assert await two_nodes.where("u1") == "bound n1"
    assert ((await two_nodes.node("n1")).pods, (await two_nodes.node("n2")).pods) == (1, 0)
    assert len(cluster.sent) == 1


@pytest.mark.parametrize("knows", ["filter", "nothing"])
async def test_row_02_a_bind_goes_by_uid(
    replica: Replica, cluster: ClusterDouble, knows: str
) -> None:
    """Bind went by name and hit another pod that had taken the same name."""
    old = pod_json("u-old", name="web-0", rv="50")
    if knows == "filter":
        await replica.filter(old)
    cluster.pod("u-new", name="web-0")

    error = await replica.bind(old)

    assert error
    assert cluster.where("web-0") is None
    assert await replica.reserved() == (0, 0)
    assert {await replica.where(uid) for uid in ("u-old", "u-new")} <= {"unknown", "pending -"}


async def test_row_02_a_bind_does_not_wait_for_the_watch(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Bind failed only because the local cache had not seen the pod yet."""
    pod = cluster.pod("web-0")

    assert await replica.bind(pod) == ""
    assert cluster.where("web-0") == "n1"


@pytest.mark.parametrize(
    ("offered", "passed"),
    [
        ({"NodeNames": ["n1", "n2", "n9"], "Nodes": None}, ["n1", "n2"]),
        ({"Nodes": ["n2", "n9", "n1"], "NodeNames": None}, ["n2", "n1"]),
        ({"NodeNames": []}, []),
        ({"NodeNames": [], "Nodes": None}, []),
        ({"Nodes": []}, []),
    ],
)
async def test_row_03_the_mode_is_picked_by_request(
    two_nodes: Replica, cluster: ClusterDouble, offered: Json, passed: list[str]
) -> None:
    """The extender expected one mode and met null, or answered a node that was not offered."""
    cluster.node("n3")
    await two_nodes.catch_up()
    nodes = {
        name: {"metadata": {"name": name, "labels": {"a": "b"}}} for name in ("n1", "n2", "n9")
    }
    if offered.get("Nodes") is not None:
        offered = offered | {"Nodes": {"items": [nodes[name] for name in offered["Nodes"]]}}

    answer = await two_nodes.post("filter", Pod=pod_json("u1"), **offered)

    whole = isinstance(offered.get("Nodes"), dict)
    assert answer["NodeNames"] == (None if whole else passed)
    assert answer["Nodes"] == (
        {"metadata": {}, "items": [nodes[name] for name in passed]} if whole else None
    )
    failed = {"n9": Reason.UNKNOWN_NODE} if passed else {}
    assert (answer["FailedNodes"], answer["FailedAndUnresolvableNodes"]) == (failed, {})


async def test_row_03_neither_mode_is_a_clean_error(replica: Replica) -> None:
    body = {"Pod": pod_json("u1"), "NodeNames": None, "Nodes": None}

    reply = await replica.send("extender", "/extender/filter", body)

    assert (reply.status, reply.text) == (400, "NodeNames: is required, unless Nodes is given\n")


@pytest.mark.parametrize("config", [SchedulerConfig(), RANDOM], ids=["plain", "random"])
async def test_row_04_scores_follow_use_and_size(
    start: StartReplica, cluster: ClusterDouble, config: SchedulerConfig
) -> None:
    """Scores left the range, followed size instead of use, or the random spread was dropped."""
    for name, cpu, booked in (("n-big", 64, 32), ("n-small", 16, 8), ("n-full", 8, 8)):
        cluster.node(name, cpu=cpu, mem=f"{4 * cpu}Gi")
        cluster.pod(f"on-{name}", cpu=booked, mem=f"{4 * booked}Gi", node=name)
    cluster.node("n-zero", cpu="0", mem="0")
    names = ["n-big", "n-small", "n-full", "n-zero"]
    replica = await start(config=config)
    await replica.lead()

    scores = [await replica.prioritize(pod_json("u1", cpu="100m"), *names) for _ in range(200)]

    assert {tuple(one) for one in scores} == {tuple(names)}
    seen = {name: {one[name] for one in scores} for name in names}
    random = config.randomize_scores
    assert seen == {
        "n-big": set(range(1, 9)) if random else {8},
        "n-small": {1, 2} if random else {2},  # a quarter of n-big
        "n-full": {0},
        "n-zero": {0},
    }


@pytest.mark.parametrize("cpu", ["1", "99"], ids=["fits", "fits-nowhere"])
async def test_row_05_read_only_verbs_leave_the_store_as_it_is(
    two_nodes: Replica, cluster: ClusterDouble, cpu: str
) -> None:
    """A read-only verb changed the books, or filter picked the node itself."""
    cluster.node("n3")
    cluster.pod("u0", node="n1")
    await two_nodes.catch_up()
    pod, names = cluster.pod("u1", cpu=cpu), ["n1", "n2", "n3"]
    before = await two_nodes.dump()

    for _ in range(100):
        passed = (await two_nodes.filter(pod, *names)).passed
        assert passed == (names if cpu == "1" else [])
        await two_nodes.prioritize(pod, *names)
        await two_nodes.preempt(pod, n1=["u0"])

    assert await two_nodes.dump() == before


@pytest.mark.parametrize("store_has_less", [False, True])
async def test_row_06_a_refused_bind_is_refused_in_the_next_filter_too(
    start: StartReplica, cluster: ClusterDouble, store_has_less: bool
) -> None:
    """Filter said yes and reserve no, for ever on the same node while others had room.

    Unlike the reference, which counts an over-budget metric, reserve refuses.
    """
    system = NodeConfig(system=Resources(2000, 0)) if store_has_less else NodeConfig()
    config = SchedulerConfig(nodes=system)
    a, b = await start(name="a", config=config), await start(name="b", config=config)
    cluster.node("n2")
    await a.lead()
    u1, u2 = cluster.pod("u1", cpu="4"), cluster.pod("u2", cpu="5")
    nodes = {"items": [{**cluster.nodes[name]} for name in ("n1", "n2")]}
    assert (await a.filter(u1, "n1", "n2")).passed == ["n1", "n2"]
    assert await b.bind(u2) == ""

    refused = await a.bind(u1)
    again = [await each.post("filter", Pod=u1, Nodes=nodes) for each in (a, b)]

    assert refused == Reason.CPU
    assert [list(one["FailedNodes"]) for one in again] == [["n1"], ["n1"]]
    assert [sent[0] for sent in cluster.sent] == ["u2"]
    assert await a.bind(u1, "n2") == ""


async def test_row_07_a_failed_bind_gives_everything_back_once(
    two_nodes: Replica, cluster: ClusterDouble
) -> None:
    """Release was skipped for VM pods, crashed, or leaked after a single failed bind."""
    u1, u2 = (cluster.pod(uid, metadata=runs_vm("5", 8)) for uid in ("u1", "u2"))
    for pod in (u1, u2):
        await two_nodes.reserve(pod)
        if pod is u1:
            cluster.delete("u1")  # 404
        else:
            cluster.answers_bind(is_refused)  # 409
        assert await two_nodes.bind(pod)
        assert await two_nodes.reserved() == (0, 0)

    for pod in (u1, u1, u2, pod_json("u9")):
        assert await two_nodes.unreserve(pod) == ("Success", [])

    assert await two_nodes.reserved() == (0, 0)
    assert await two_nodes.bind(cluster.pod("u3", metadata=runs_vm("5", 8))) == ""


async def test_row_07_a_release_that_names_another_node_leaves_the_hold(
    two_nodes: Replica,
) -> None:
    pod = pod_json("u1", metadata=runs_vm("5", 8))
    await two_nodes.reserve(pod)

    assert await two_nodes.unreserve(pod, "n2") == ("Success", [])

    assert await two_nodes.where("u1") == "held n1"
    assert await two_nodes.reserved("n1") == (5000, 8 << 10)
    assert await two_nodes.reserved("n2") == (0, 0)


async def test_row_08_victims_count_with_what_they_are_approved(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Pods were evicted on nodes that the extender would have refused anyway."""
    cluster.pod("u1", node="n1", cpu="1", metadata=runs_vm("1", 1))
    cluster.pod("u0", node="n1", cpu="3")
    await replica.catch_up()
    assert await replica.permit("u1", 4, "1Gi") == (4, "1Gi")

    assert await replica.preempt(pod_json("u5", cpu="5"), n1=["u1"]) == {"n1": ["u1"]}
    assert await replica.preempt(pod_json("u6", cpu="6"), n1=["u1"]) == {}


async def test_row_08_what_could_never_fit_is_told_from_what_does_not_fit_now(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node("n2", cpu="32")
    cluster.pod("u0", node="n2", cpu="32")
    await replica.catch_up()

    answer = await replica.filter(pod_json("u1", cpu="16"), "n1", "n2")

    assert answer == Filtered([], {"n2": Reason.CPU}, {"n1": Reason.TOO_SMALL}, "")


NULLS = {
    "containers": [{"name": "c", "resources": None}],
    "initContainers": None,
    "overhead": None,
    "resources": None,
    "nodeName": None,
}


@pytest.mark.parametrize(
    "body",
    [
        {"Pod": pod_json("u1"), "NodeNames": ["n1"]},
        {"pod": pod_json("u1"), "nodenames": ["n1"]},
        {"POD": pod_json("u1"), "nodeNames": ["n1"], "Nodes": None},
        {"Pod": pod_json("u1", spec=NULLS), "NodeNames": ["n1"]},
        {
            "Pod": pod_json(
                "u1", metadata=dict.fromkeys(["annotations", "labels", "ownerReferences"])
            ),
            "NodeNames": ["n1"],
        },
        {"Pod": pod_json("u1", spec={"containers": None}), "NodeNames": ["n1"]},
    ],
    ids=["capital", "lower", "mixed", "null-spec", "null-metadata", "no-containers"],
)
async def test_row_09_every_spelling_is_answered_alike(replica: Replica, body: Json) -> None:
    """Key case, one key's name and null-for-empty differ between scheduler releases."""
    reply = await replica.send("extender", "/extender/filter", body)

    assert reply.text == (
        '{"Nodes":null,"NodeNames":["n1"],"FailedNodes":{},'
        '"FailedAndUnresolvableNodes":{},"Error":""}'
    )


@pytest.mark.parametrize("key", ["NodeNameToVictims", "nodeToVictims", "nodenametovictims"])
async def test_row_09_older_names_of_victims_are_taken(
    replica: Replica, cluster: ClusterDouble, key: str
) -> None:
    cluster.pod("u0", node="n1", cpu="8")
    await replica.catch_up()
    victims = {"n1": {"Pods": [{"metadata": {"uid": "u0"}}], "NumPDBViolations": None}}

    answer = await replica.post("preempt", Pod=pod_json("u1"), **{key: victims})

    kept = {"n1": {"Pods": [{"UID": "u0"}], "NumPDBViolations": 0}}
    assert answer == {"NodeNameToMetaVictims": kept}


async def test_row_09_bind_is_read_in_any_case(replica: Replica, cluster: ClusterDouble) -> None:
    lower = {key.lower(): value for key, value in bind_args(cluster.pod("u1")).items()}

    assert await replica.post("bind", **lower) == {"Error": ""}


async def test_row_20_pods_in_ignored_namespaces_block_filters_only(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    """Fillers vanished everywhere or blocked everything."""
    replica = await start(config=SchedulerConfig(ignored_namespaces=frozenset({"fill"})))
    await replica.lead()
    empty = await replica.prioritize(pod_json("u1", mem="8Gi"))
    cluster.pod("vm-1", node="n1", metadata=runs_vm("1", 12))
    await replica.catch_up()
    one_vm = await replica.prioritize(pod_json("u1", mem="8Gi"))
    filler = cluster.pod("f1", namespace="fill", cpu="6")

    assert await replica.bind(filler) == ""  # e

    assert (await replica.filter(pod_json("u1", cpu="4"))).failed == {"n1": Reason.CPU}  # a
    assert await replica.permit("vm-1", 4, "12Gi") == (4, "12Gi")  # b
    await replica.permit("vm-1", 1, "12Gi")
    assert await replica.prioritize(pod_json("u1", mem="8Gi")) == one_vm != empty  # c
    more = pod_json("f2", namespace="fill", cpu="2")
    assert (await replica.filter(more)).failed == {"n1": Reason.CPU}  # d


async def test_row_29_large_filter_calls_are_answered(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """A default body limit rejected them; 1000 Nodes of 15 KiB are due within 5 s."""
    nodes: list[Any] = [
        {"metadata": {"name": f"n{i}"}, "status": {"images": "x" * 15_000}} for i in range(1000)
    ]
    body = json.dumps({"Pod": pod_json("u1"), "Nodes": {"items": nodes}}).encode()

    began = time.process_time()
    reply = await replica.send("extender", "/extender/filter", body)

    assert time.process_time() - began < 5  # caller and replica are one process here
    assert reply.json["Nodes"]["items"] == [nodes[1]]
