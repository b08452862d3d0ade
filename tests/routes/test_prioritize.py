"""prioritize: every offered node, whole numbers from 0 to 10."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from autoscale_enforcer.config.scheduler_config import SchedulerConfig
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, pod_json
from tests.support.replica import Replica

RANDOM = SchedulerConfig(randomize_scores=True)


async def test_prioritize_answers_each_offered_node_once_in_order(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node("n2", cpu="4", mem="16Gi")
    await replica.catch_up()

    answer = await replica.post(
        "prioritize", Pod=pod_json("u1"), NodeNames=["n2", "nowhere", "n1", "n2"]
    )

    assert [score["Host"] for score in answer] == ["n2", "nowhere", "n1"]
    assert [list(score) for score in answer] == [["Host", "Score"]] * 3


async def test_prioritize_takes_whole_nodes_too(replica: Replica) -> None:
    nodes = {"items": [{"metadata": {"name": "n1"}}, {"metadata": {"name": "n2"}}]}

    answer = await replica.post("prioritize", pod=pod_json("u1"), NODES=nodes)

    assert [score["Host"] for score in answer] == ["n1", "n2"]


async def test_prioritize_gives_zero_to_nodes_that_do_not_fit(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node("n-zero", cpu="0", mem="0")
    cluster.node("n-full")
    cluster.pod("u0", cpu="8", node="n-full")
    await replica.catch_up()

    scores = await replica.prioritize(pod_json("u1"), "n1", "n-zero", "n-full", "nowhere")

    assert scores.pop("n1") > 0
    assert scores == {"n-zero": 0, "n-full": 0, "nowhere": 0}


async def test_prioritize_gives_zero_everywhere_to_a_pod_it_cannot_read(replica: Replica) -> None:
    assert await replica.prioritize(pod_json("u1", cpu="abc"), "n1", "n2") == {"n1": 0, "n2": 0}


async def test_prioritize_does_not_count_the_pods_own_hold(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node("n2")
    await replica.catch_up()
    pod = pod_json("u1", cpu="6", mem="24Gi")
    before = await replica.prioritize(pod, "n1", "n2")

    await replica.reserve(pod)

    assert await replica.prioritize(pod, "n1", "n2") == before


async def test_prioritize_draws_from_one_to_the_true_score(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    replica = await start(config=RANDOM)
    await replica.lead()
    true = (await (await start()).prioritize(pod_json("u1", cpu="6", mem="24Gi")))["n1"]

    pod = pod_json("u1", cpu="6", mem="24Gi")
    drawn = {(await replica.prioritize(pod))["n1"] for _ in range(200)}

    assert true > 1
    assert drawn == set(range(1, true + 1))


async def test_prioritize_is_503_while_redis_is_away(orphan: Replica) -> None:
    """Its answer has no place for an error."""
    body = {"Pod": pod_json("u1"), "NodeNames": ["n1"]}

    reply = await orphan.send("extender", "/extender/prioritize", body)

    assert (reply.status, reply.kind, reply.headers["X-Replica"]) == (503, "text/plain", "r1")


async def test_prioritize_is_503_while_the_ledger_is_unbuilt(start: StartReplica) -> None:
    replica = await start()

    reply = await replica.send(
        "extender", "/extender/prioritize", {"Pod": pod_json("u1"), "NodeNames": ["n1"]}
    )

    assert (reply.status, reply.text) == (503, "the ledger is not built\n")


async def test_prioritize_gives_zero_to_nodes_that_are_not_settled(start: StartReplica) -> None:
    replica = await start(settle_after=timedelta(hours=1))
    await replica.lead()
    await replica.loses_its_primary()

    assert await replica.prioritize(pod_json("u1")) == {"n1": 0}


async def test_prioritize_scores_a_node_that_may_be_added_by_what_the_request_says_of_it(
    replica: Replica,
) -> None:
    def node(name: str, cpu: str) -> dict[str, Any]:
        allocatable = {"cpu": cpu, "memory": "32Gi"}
        return {"metadata": {"name": name}, "status": {"allocatable": allocatable}}

    nodes = {"items": [{"metadata": {"name": "n1"}}, node("like-n1", "8"), node("small", "1")]}
    answer = await replica.post("prioritize", Pod=pod_json("u1", cpu="2"), Nodes=nodes)

    scores = {score["Host"]: score["Score"] for score in answer}
    assert scores == {"n1": scores["n1"], "like-n1": scores["n1"], "small": 0}
    assert scores["n1"] > 0


async def test_prioritize_gives_zero_where_the_pod_may_not_go_for_other_reasons_than_room(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node("n2")
    pod = cluster.pod("u1", cpu="2", node="n1")
    await replica.catch_up()

    few = await replica.prioritize(pod, "n1", "n2")
    more = await replica.prioritize(pod, "n1", "n2", "nowhere")

    assert few["n1"] > 0
    assert few == {"n1": few["n1"], "n2": 0}
    assert more == {**few, "nowhere": 0}
