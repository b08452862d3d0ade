"""Imported books: suspect until they are compared, their holds old, their permits past."""

from __future__ import annotations

from datetime import timedelta

import pytest

from autoscale_enforcer.ledger.transfer import ImportRefused, export_books, import_books
from autoscale_enforcer.policy.fit import Reason
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, pod_json, runs_vm
from tests.support.replica import Replica


@pytest.fixture
async def replica(start: StartReplica) -> Replica:
    replica = await start(settle_after=timedelta(seconds=30))
    await replica.lead()
    return replica


async def export(replica: Replica) -> bytes:
    """A file of the books as they are."""
    return await export_books(replica.ledger)


async def import_again(replica: Replica, content: bytes) -> None:
    """The file takes the place of the books, while nobody leads."""
    await replica.leader.resign()
    await import_books(replica.ledger, content, replace=True)


async def test_imported_books_grant_nothing_before_they_are_compared(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("vm-1", node="n1", metadata=runs_vm(use="1", slots=1))
    await replica.catch_up()
    await import_again(replica, await export(replica))

    filtered = await replica.filter(pod_json("u1"))
    reserved = await replica.reserve(pod_json("u1"))
    permit = await replica.permit("vm-1", 4, "1Gi")

    assert (await replica.ledger.look()).state == "SUSPECT"
    assert filtered.error == Reason.UNSETTLED
    assert reserved == ("Error", [Reason.UNSETTLED])
    assert permit == (1, "1Gi")


async def test_imported_books_say_what_the_cluster_says_once_compared(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("u1", node="n1", cpu="2")
    await replica.catch_up()
    content = await export(replica)
    cluster.pod("u1", node="n1", cpu="3")
    cluster.pod("u2", node="n1", cpu="1")
    cluster.node("n1", cpu="16")
    await import_again(replica, content)
    old = await replica.reserved()

    await replica.lead()

    assert (await replica.ledger.look()).state == "SETTLED"
    assert (old, await replica.reserved()) == ((2000, 1024), (4000, 2048))
    assert (await replica.node()).cap_cpu == 16000
    assert (await replica.reserve(pod_json("u3")))[0] == "Success"
    assert await replica.verify() == []


@pytest.mark.parametrize(
    ("became", "where"),
    [
        pytest.param("unbound", "pending -", id="nobody bound it"),
        pytest.param("bound", "bound n2", id="it was bound elsewhere meanwhile"),
        pytest.param("gone", "pending -", id="it is gone"),
    ],
)
async def test_imported_holds_are_old_and_looked_into_at_once(
    replica: Replica, cluster: ClusterDouble, became: str, where: str
) -> None:
    """Their deadlines and stamps are of the time of the export, and maybe of another clock."""
    cluster.node("n2")
    await replica.catch_up()
    await replica.reserve(cluster.pod("u1"))
    content = await export(replica)
    if became == "gone":
        cluster.delete("u1")
    elif became == "bound":
        cluster.pod("u1", node="n2")
    await import_again(replica, content)

    await replica.lead()
    await replica.sweep(lapsed=0 if became == "bound" else 1)

    assert await replica.where("u1") == where
    assert await replica.verify() == []


async def test_imported_permits_are_made_good_by_what_agents_were_told_last(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """A permit that was told after the export is in no file and in no object of the cluster."""
    cluster.pod("vm-1", node="n1", metadata=runs_vm(use="1", slots=1))
    await replica.catch_up()
    await replica.permit("vm-1", 1, "1Gi")
    content = await export(replica)
    assert await replica.permit("vm-1", 6, "1Gi") == (6, "1Gi")
    await import_again(replica, content)
    await replica.lead()

    early = await replica.reserve(pod_json("u1", cpu="4"))
    permit = await replica.permit("vm-1", 6, "1Gi", lastPermit={"vCPUs": 6, "mem": "1Gi"})
    late = await replica.reserve(pod_json("u1", cpu="4"))

    assert early == ("Error", [Reason.UNSETTLED])
    assert permit == (6, "1Gi")
    assert late == ("Unschedulable", [Reason.CPU])


async def test_import_of_another_clusters_books_is_refused(replica: Replica) -> None:
    await replica.ledger.claim("cluster-a")
    content = await export(replica)
    await replica.raw.hset("ae:{default}:meta", "cluster", "cluster-b")
    before = await replica.dump()

    with pytest.raises(ImportRefused, match="of the cluster cluster-a"):
        await import_again(replica, content)

    after = await replica.dump()
    assert {k: v for k, v in after.items() if "lease" not in k} == {
        k: v for k, v in before.items() if "lease" not in k
    }
