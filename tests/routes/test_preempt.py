"""preempt: nodes that would have room once what their victims hold is gone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, pod_json, runs_vm
from tests.support.replica import Replica


@pytest.fixture
async def full(replica: Replica, cluster: ClusterDouble) -> Replica:
    """n1 has a VM that asks 1 CPU and is granted 4, and 3 CPU of others."""
    cluster.pod("vm-1", node="n1", metadata=runs_vm("1", 1))
    cluster.pod("u0", cpu="3", node="n1")
    await replica.catch_up()
    assert await replica.permit("vm-1", 4, "1Gi") == (4, "1Gi")
    return replica


async def test_preempt_counts_victims_with_what_they_hold(full: Replica) -> None:
    """Field report 8: pods were evicted on nodes that would be refused anyway."""
    assert await full.preempt(pod_json("u1", cpu="5"), n1=["vm-1"]) == {"n1": ["vm-1"]}
    assert await full.preempt(pod_json("u1", cpu="6"), n1=["vm-1"]) == {}


async def test_preempt_judges_each_node_on_its_own(full: Replica, cluster: ClusterDouble) -> None:
    cluster.node("n2")
    cluster.pod("u2", cpu="8", node="n2")
    await full.catch_up()

    kept = await full.preempt(pod_json("u1", cpu="6"), n1=["vm-1"], n2=["u2"], nowhere=["u9"])

    assert kept == {"n2": ["u2"]}


async def test_preempt_does_not_name_victims_that_have_left(
    full: Replica, cluster: ClusterDouble
) -> None:
    """kube-scheduler hears of a deletion first and would evict a second pod."""
    cluster.delete("vm-1")

    assert await full.preempt(pod_json("u1", cpu="8"), n1=["vm-1", "u0"]) == {"n1": ["u0"]}
    assert await full.preempt(pod_json("u1", cpu="5"), n1=["vm-1"]) == {}


async def test_preempt_adds_no_victims_and_keeps_the_budget_violations(full: Replica) -> None:
    victims = {"Pods": [{"UID": "u0"}, {"UID": "vm-1"}], "NumPDBViolations": 3}
    offered = {"n1": victims}

    answer = await full.post("preempt", Pod=pod_json("u1"), NodeNameToMetaVictims=offered)

    assert answer == {"NodeNameToMetaVictims": offered}


async def test_preempt_never_answers_a_node_without_victims(full: Replica) -> None:
    """kube-scheduler takes an empty list for a node to be cleared of nothing, and fails on it."""
    assert await full.preempt(pod_json("u1", cpu="1"), n1=[]) == {}


@pytest.mark.parametrize("key", ["NodeNameToVictims", "nodeToVictims", "nodenametovictims"])
async def test_preempt_takes_whole_pods_and_the_older_key(full: Replica, key: str) -> None:
    """Field report 9: one key's name differs between scheduler releases."""
    victims = {"n1": {"pods": [{"metadata": {"uid": "vm-1"}, "spec": {}}]}}

    answer = await full.post("preempt", pod=pod_json("u1", cpu="5"), **{key: victims})

    kept = {"n1": {"Pods": [{"UID": "vm-1"}], "NumPDBViolations": 0}}
    assert answer == {"NodeNameToMetaVictims": kept}


async def test_preempt_leaves_the_ledger_as_it_is(full: Replica) -> None:
    before = await full.dump()

    await full.preempt(pod_json("u1", cpu="5"), n1=["vm-1"])

    assert await full.dump() == before


@pytest.mark.parametrize("pod", [pod_json("u1", cpu="abc"), pod_json("u1", cpu="9")])
async def test_preempt_keeps_no_node_for_a_pod_that_fits_nowhere(
    full: Replica, pod: dict[str, Any]
) -> None:
    assert await full.preempt(pod, n1=["vm-1", "u0"]) == {}


async def test_preempt_keeps_only_the_node_that_the_pod_is_bound_to(
    full: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u5", cpu="1", node="n1")
    cluster.node("n2")
    cluster.pod("u2", cpu="8", node="n2")
    await full.catch_up()

    assert await full.preempt(pod, n1=["u0"], n2=["u2"]) == {"n1": ["u0"]}


@pytest.mark.parametrize("trouble", ["redis", "unbuilt", "cluster"])
async def test_preempt_is_503_when_it_cannot_judge(
    start: StartReplica, orphan: Replica, cluster: ClusterDouble, trouble: str
) -> None:
    """Its answer has no place for an error."""
    replica = orphan if trouble == "redis" else await start()
    if trouble == "cluster":
        await replica.lead()
        cluster.down = {"pods_on"}
    body = {"Pod": pod_json("u1"), "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u2"}]}}}

    reply = await replica.send("extender", "/extender/preempt", body)

    assert (reply.status, reply.kind, reply.headers["X-Replica"]) == (503, "text/plain", "r1")
