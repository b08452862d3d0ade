"""The binder itself: what it sends, with which stamps, and what it raises. `bind` is in routes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from autoscale_enforcer.cluster.binder import Binder, BindOrder, Refusal
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Reserve, ReserveAnswer
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import PodRow, said_row
from autoscale_enforcer.objects.decode import convert
from autoscale_enforcer.objects.pods import read_pod
from autoscale_enforcer.objects.shapes import PodObject
from tests.support.cluster_double import ClusterDouble, Json, never_arrives, pod_json, reply_lost
from tests.support.replica import Replica


async def order(replica: Replica, pod: Json, node: str = "n1") -> BindOrder:
    """A bind that has just been asked for."""
    named = pod["metadata"]
    return BindOrder(
        uid=PodUid(named["uid"]),
        name=PodName(f"{named['namespace']}/{named['name']}"),
        node=NodeName(node),
        stamp=await replica.ledger.stamp(),
        context={},
    )


async def settle(replica: Replica, cluster: ClusterDouble, pod: Json) -> Refusal | None:
    """As a sweep settles a bind."""
    late = await order(replica, pod)
    return await replica.binder.settle(late, await cluster.read_pod(late.name))


def said(pod: Json) -> PodRow:
    return said_row(read_pod(convert(pod, PodObject)))


async def test_bind_sends_no_version_where_none_is_known(
    replica: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u1")
    nameless = said(pod)
    nameless.rv = "-"

    assert await replica.binder.bind(await order(replica, pod), said=nameless) is None

    assert cluster.sent == [("u1", "n1", "-")]


async def test_bind_sends_the_version_that_was_judged(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Not the one said: the ledger knew a newer, and its amounts are what is held."""
    old = pod_json("u1", cpu="1", rv="50")
    new = cluster.pod("u1", cpu="2")
    await replica.catch_up()

    assert await replica.binder.bind(await order(replica, old), said=said(old)) is None

    assert cluster.sent == [("u1", "n1", new["metadata"]["resourceVersion"])]
    assert await replica.reserved() == (2000, 1024)


async def test_bind_refuses_what_is_older_than_the_hold(
    replica: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u1")
    early = await order(replica, pod)
    await replica.reserve(pod)

    refusal = await replica.binder.bind(early, said=said(pod))

    assert refusal == Refusal(ReserveAnswer(outcome=Reserve.LATE))
    assert cluster.sent == []


async def test_bind_has_the_script_say_why_not(replica: Replica, cluster: ClusterDouble) -> None:
    pod = cluster.pod("u1", cpu="9")

    refusal = await replica.binder.bind(await order(replica, pod), said=said(pod))

    assert refusal == Refusal(ReserveAnswer(outcome=Reserve.NO_ROOM, short="cpu"))


async def test_bind_raises_what_it_could_not_find_out(
    replica: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u1")
    cluster.answers_bind(never_arrives)
    cluster.down = {"read_pod"}

    with pytest.raises(ClusterUnavailable):
        await replica.binder.bind(await order(replica, pod), said=said(pod))

    assert await replica.where("u1") == "binding n1"


async def test_bind_counts_a_binding_that_could_not_be_booked(
    replica: Replica, cluster: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is bound all the same: an `Error` would make kube-scheduler look for another node."""
    pod = cluster.pod("u1")

    async def away(*_: object, **__: object) -> None:
        raise LedgerUnavailable("away")

    monkeypatch.setattr(Ledger, "confirm_bind", away)

    assert await replica.binder.bind(await order(replica, pod), said=said(pod)) is None
    assert await replica.where("u1") == "binding n1"


@pytest.mark.parametrize("said_so", [True, False], ids=["a filter heard so", "so it is booked"])
async def test_bind_holds_room_for_a_pod_that_was_ignored_when_it_was_last_heard_of(
    replica: Replica, cluster: ClusterDouble, said_so: bool
) -> None:
    """The namespace is ignored no longer: the pod was bound without a hold to a full node."""
    pod, small = cluster.pod("u1", cpu="9"), cluster.pod("u2", cpu="2")
    for each in (pod, small):
        fact = read_pod(convert(each, PodObject))
        await replica.ledger.put_pod(fact, leader=None, ignored=True)

    def heard(pod: Json) -> PodRow | None:
        return replace(said(pod), ignored=1) if said_so else None

    refusal = await replica.binder.bind(await order(replica, pod), said=heard(pod))
    bound = await replica.binder.bind(await order(replica, small), said=heard(small))

    assert refusal == Refusal(ReserveAnswer(outcome=Reserve.NO_ROOM, short="cpu"))
    assert (bound, await replica.where("u2")) == (None, "bound n1")
    assert (await replica.node()).reserved.cpu == 2000
    assert [uid for uid, *_ in cluster.sent] == ["u2"]


@pytest.mark.parametrize("said_so", [True, False])
async def test_reserve_reads_live_only_what_is_unknown(
    replica: Replica, cluster: ClusterDouble, said_so: bool
) -> None:
    pod = cluster.pod("u1")
    cluster.calls.clear()

    answer = await replica.binder.reserve(
        await order(replica, pod), said=said(pod) if said_so else None, to="held"
    )

    assert answer.outcome is Reserve.HELD
    assert cluster.calls == ({} if said_so else {"read_pod": 1})


async def test_reserve_learns_from_its_live_read_that_the_pod_is_bound(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node("n2")
    await replica.catch_up()
    pod = cluster.pod("u1", node="n2")

    answer = await replica.binder.reserve(await order(replica, pod), said=None, to="held")

    assert (answer.outcome, answer.node) == (Reserve.CONFLICT, "n2")
    assert await replica.where("u1") == "bound n2"


async def test_reserve_leaves_the_holder_of_a_name_that_the_cluster_confirms(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("u-old", name="web-0", node="n1")
    await replica.catch_up()
    false = pod_json("u-new", name="web-0", rv="900")

    answer = await replica.binder.reserve(await order(replica, false), said=said(false), to="held")

    assert answer.outcome is Reserve.GONE
    assert await replica.where("u-old") == "bound n1"


@pytest.mark.parametrize(
    ("there", "where", "words"),
    [
        ({"node": "n1"}, "bound n1", None),
        ({"node": "n2"}, "bound n2", "the pod is bound to another node"),
        ({}, "pending -", "the Binding was refused"),
        ({"node": "n1", "phase": "Failed"}, "pending -", "the pod is gone"),
        (None, "pending -", "the pod is gone"),
    ],
    ids=["here", "elsewhere", "unbound", "finished", "gone"],
)
async def test_settle_books_what_a_live_read_proves(
    replica: Replica,
    cluster: ClusterDouble,
    there: dict[str, Any] | None,
    where: str,
    words: str | None,
) -> None:
    cluster.node("n2")
    await replica.catch_up()
    pod = cluster.pod("u1")
    cluster.answers_bind(reply_lost)
    cluster.down = {"read_pod"}
    with pytest.raises(ClusterUnavailable):
        await replica.binder.bind(await order(replica, pod), said=said(pod))
    cluster.down = set()
    cluster.delete("u1")
    if there is not None:
        cluster.pod("u1", **there)

    refusal = await settle(replica, cluster, pod)

    assert refusal == (Refusal(words=words) if words else None)
    assert await replica.where("u1") == where
    assert await replica.verify() == []


async def test_settle_does_not_touch_a_pod_that_is_bound(
    replica: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u1", node="n1")

    await settle(replica, cluster, pod)

    assert "outdate_bindings" not in cluster.calls


async def test_the_last_free_room_goes_to_as_many_as_fit(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Field report 31: bursts land on one node."""
    cluster.node("n4", cpu="4")
    await replica.catch_up()
    pods = [cluster.pod(f"u{i}", cpu="2") for i in range(10)]
    binders = [replica.binder, Binder(replica.ledger, cluster, LiveConfig())]

    orders = [await order(replica, pod, "n4") for pod in pods]

    ends = await asyncio.gather(
        *(binders[i % 2].bind(orders[i], said=said(pod)) for i, pod in enumerate(pods))
    )

    assert [end is None for end in ends].count(True) == 2
    assert await replica.reserved("n4") == (4000, 2048)
    assert len(cluster.sent) == 2
