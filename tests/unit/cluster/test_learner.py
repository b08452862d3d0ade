"""Nodes and pods that nobody knows are read once and not again too soon; no filter waits long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from autoscale_enforcer.cluster import learner as learning
from autoscale_enforcer.cluster.learner import AT_ONCE, NodeLearner, PodLearner
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.errors import ClusterUnavailable
from autoscale_enforcer.model.ids import NodeName, PodName
from tests.support.cluster_double import ClusterDouble, pod_json
from tests.support.replica import Replica, until

NEW = NodeName("n2")


@pytest.fixture
async def learner(replica: Replica, cluster: ClusterDouble) -> AsyncIterator[NodeLearner]:
    learner = NodeLearner(replica.ledger, cluster, LiveConfig(version="1"))
    await replica.ledger.mirror.refresh()
    cluster.calls.clear()
    yield learner
    await learner.close()


async def test_an_unknown_node_is_learned_with_its_pods(
    learner: NodeLearner, replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node(NEW, cpu="4")
    cluster.pod("u1", node=NEW, cpu="3")
    cluster.pod("u2", node=NEW, cpu="3", phase="Failed")

    await learner.learn([NodeName("n1"), NEW])

    row = replica.ledger.mirror.nodes[NEW]
    assert (row.cap_cpu, row.reserved_cpu, row.absent) == (4000, 3000, 0)
    assert cluster.calls == {"read_node": 1, "facts_on": 1}
    assert await replica.verify() == []


async def test_a_node_has_no_capacity_before_its_pods_are_booked(
    learner: NodeLearner, replica: Replica, cluster: ClusterDouble
) -> None:
    """Between the two a reserve would have found it empty."""
    cluster.node(NEW, cpu="4")
    cluster.pod("u1", node=NEW, cpu="3")
    seen = []
    put = replica.ledger.put_node

    async def looking(*given: object, **more: object) -> object:
        seen.append(await replica.reserve(pod_json("u9", cpu="3"), NEW))
        return await put(*given, **more)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(replica.ledger), "put_node", lambda _, *a, **k: looking(*a, **k))
        await learner.learn([NEW])

    assert seen[0][0] != "Success"
    assert (await replica.reserve(pod_json("u9", cpu="3"), NEW))[0] == "Unschedulable"


async def test_many_callers_cost_one_read(learner: NodeLearner, cluster: ClusterDouble) -> None:
    cluster.node(NEW)

    await asyncio.gather(*(learner.learn([NEW]) for _ in range(50)))

    assert cluster.calls == {"read_node": 1, "facts_on": 1}


async def test_a_node_that_does_not_exist_is_not_asked_for_again_too_soon(
    learner: NodeLearner, cluster: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        await learner.learn([NEW])
    assert cluster.calls == {"read_node": 1}

    monkeypatch.setattr(learning, "FORGET_AFTER", 0.0)
    await learner.learn([NEW])

    assert cluster.calls == {"read_node": 2}


async def test_what_was_asked_for_is_forgotten(
    learner: NodeLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "FORGET_AFTER", 0.0)
    for number in range(40):
        await learner.learn([NodeName(f"never-{number}")])

    assert len(learner._asked_at) == 1
    assert len(learner._reads) == 0


async def test_nobody_waits_longer_than_patience(
    learner: NodeLearner,
    replica: Replica,
    cluster: ClusterDouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Field report 13: every filter timed out on a relist. What is read late is learned late."""
    monkeypatch.setattr(learning, "PATIENCE", 0.05)
    cluster.node(NEW, cpu="4")
    opened, read = asyncio.Event(), cluster.read_node

    async def slowly(name: NodeName) -> object:
        await opened.wait()
        return await read(name)

    monkeypatch.setattr(cluster, "read_node", slowly)
    async with asyncio.timeout(30):
        await learner.learn([NEW])
    assert NEW not in replica.ledger.mirror.nodes

    opened.set()

    async def is_known() -> bool:
        await replica.ledger.mirror.refresh()
        return NEW in replica.ledger.mirror.nodes

    await until(is_known)


async def test_a_request_with_many_unknown_nodes_reads_a_few(
    learner: NodeLearner, cluster: ClusterDouble
) -> None:
    await learner.learn([NodeName(f"n-{number}") for number in range(3 * AT_ONCE)])

    assert cluster.calls == {"read_node": AT_ONCE}


async def test_known_nodes_are_not_read(learner: NodeLearner, cluster: ClusterDouble) -> None:
    await learner.learn([NodeName("n1")])

    assert cluster.calls == {}


async def test_a_node_known_only_by_its_pods_is_read(
    learner: NodeLearner, replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("u1", node=NEW, cpu="1")
    await replica.catch_up()
    await replica.ledger.mirror.refresh()
    assert replica.ledger.mirror.nodes[NEW].absent == 1
    cluster.node(NEW, cpu="4")

    await learner.learn([NEW])

    row = replica.ledger.mirror.nodes[NEW]
    assert (row.absent, row.cap_cpu, row.reserved_cpu) == (0, 4000, 1000)


async def test_trouble_is_kept_from_the_filter(
    learner: NodeLearner, cluster: ClusterDouble
) -> None:
    cluster.node(NEW)
    cluster.down = {"read_node"}
    await learner.learn([NEW])

    cluster.down = set()
    await learner.learn([NEW])

    assert cluster.calls["facts_on"] == 1


async def test_close_ends_what_is_under_way(
    learner: NodeLearner, cluster: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "PATIENCE", 0.001)

    async def never(name: NodeName) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(cluster, "read_node", never)
    await learner.learn([NEW])

    await learner.close()

    assert len(learner._reads) == 0


# Pods


@pytest.fixture
async def pods(replica: Replica, cluster: ClusterDouble) -> AsyncIterator[PodLearner]:
    learner = PodLearner(replica.ledger, cluster, LiveConfig(version="1"))
    cluster.calls.clear()
    yield learner
    await learner.close()


WEB = PodName("default/web")


async def test_a_bound_pod_is_learned_by_one_read_for_all(
    pods: PodLearner, replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("web", node="n1", cpu="2")

    facts = await asyncio.gather(*(pods.learn(WEB) for _ in range(20)))

    assert cluster.calls == {"read_pod": 1}
    assert {fact.node for fact in facts if fact} == {"n1"}
    assert await replica.reserved() == (2000, 1024)


async def test_a_pod_that_is_not_bound_is_not_asked_for_again_too_soon(
    pods: PodLearner, cluster: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call of each agent was a read: agents of pods that are gone spent the reads of binds."""
    cluster.pod("web", cpu="2")
    for name in [WEB, PodName("default/nobody")]:
        for _ in range(5):
            assert await pods.learn(name) is None
    assert cluster.calls == {"read_pod": 2}

    monkeypatch.setattr(learning, "FORGET_AFTER", 0.0)
    assert await pods.learn(WEB) is None

    assert cluster.calls == {"read_pod": 3}
    assert list(pods._missing_at) == [WEB]


async def test_who_gives_up_takes_no_answer_from_the_others(
    pods: PodLearner, cluster: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.pod("web", node="n1", cpu="2")
    opened, read = asyncio.Event(), cluster.read_pod

    async def slowly(name: PodName) -> object:
        await opened.wait()
        return await read(name)

    monkeypatch.setattr(cluster, "read_pod", slowly)
    first, second = (asyncio.ensure_future(pods.learn(WEB)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    opened.set()

    fact = await second
    assert fact
    assert fact.node == "n1"


async def test_trouble_is_not_remembered(pods: PodLearner, cluster: ClusterDouble) -> None:
    cluster.pod("web", node="n1", cpu="2")
    cluster.down = {"read_pod"}
    with pytest.raises(ClusterUnavailable):
        await pods.learn(WEB)
    cluster.down = set()

    assert await pods.learn(WEB)
