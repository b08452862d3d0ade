"""Room that comes back is told to kube-scheduler: rarely, always in the end, if waited for."""

from __future__ import annotations

from typing import Any

import pytest

from autoscale_enforcer.cluster.room import OWED_FOR, RING_EVERY, STALE_AFTER, RoomWatch
from autoscale_enforcer.errors import ClusterUnavailable
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.keys import Keys
from tests.support.cluster_double import ClusterDouble, pod_json, runs_vm
from tests.support.live import Clock
from tests.support.replica import Replica

A_LOOK = 0.25


class Bell:
    """Rings, and who waits for it; time passes with each look."""

    def __init__(self, replica: Replica) -> None:
        self.clock = Clock()
        self.is_wanted = True
        self.times: list[float] = []
        self.troubles: list[Exception] = []
        self.meanwhile: Any = None
        self.watch = RoomWatch(
            replica.ledger, is_wanted=lambda: self.is_wanted, ring=self.ring, clock=self.clock
        )

    async def ring(self) -> None:
        self.times.append(self.clock.now)
        if self.meanwhile:
            await self.meanwhile()
            self.meanwhile = None
        if self.troubles:
            raise self.troubles.pop()

    async def look(self, times: int = 1) -> int:
        """So many looks; how often it rang in them."""
        rang = len(self.times)
        for _ in range(times):
            self.clock.now += A_LOOK
            await self.watch.look()
        return len(self.times) - rang


@pytest.fixture
async def bell(replica: Replica, cluster: ClusterDouble) -> Bell:
    """It has rung for the takeover, and some time ago."""
    cluster.pod("u1", node="n1", cpu="2")
    cluster.pod("vm-1", node="n1", metadata=runs_vm(use="2", slots=2))
    await replica.catch_up()
    bell = Bell(replica)
    await bell.look(8)
    bell.times.clear()
    return bell


async def test_bell_is_silent_while_nothing_changes(bell: Bell) -> None:
    assert await bell.look(20) == 0


async def free_pod(replica: Replica, cluster: ClusterDouble) -> None:
    token = await replica.raw.hget(Keys("default").key("meta"), "fence")
    row = await replica.row("u1")
    assert row is not None
    await replica.ledger.delete_pod(
        "u1",  # type: ignore[arg-type]
        name=row.name,  # type: ignore[arg-type]
        leader=Leadership(token.decode()),
    )


async def shrink_vm(replica: Replica, cluster: ClusterDouble) -> None:
    assert await replica.permit("vm-1", 1, "1Gi") == (1, "1Gi")


async def raise_capacity(replica: Replica, cluster: ClusterDouble) -> None:
    cluster.node("n1", cpu="9")
    await replica.catch_up()


async def add_node(replica: Replica, cluster: ClusterDouble) -> None:
    cluster.node("n2")
    await replica.catch_up()


@pytest.mark.parametrize("free", [free_pod, shrink_vm, raise_capacity, add_node])
async def test_bell_rings_for_room_that_came_back(
    bell: Bell, replica: Replica, cluster: ClusterDouble, free: Any
) -> None:
    await free(replica, cluster)

    assert await bell.look(20) == 1


async def test_bell_rings_for_a_hold_that_was_released(bell: Bell, replica: Replica) -> None:
    await replica.reserve(pod_json("u2"))
    assert await bell.look() == 0

    await replica.unreserve(pod_json("u2"))

    assert await bell.look(20) == 1


async def test_bell_rings_for_a_node_that_has_settled(
    bell: Bell, replica: Replica, cluster: ClusterDouble
) -> None:
    await replica.loses_its_primary()
    assert await bell.look() == 0

    await replica.lead()

    assert await bell.look(20) == 1


async def test_bell_rings_once_a_second_and_after_the_last_change(
    bell: Bell, replica: Replica
) -> None:
    await replica.permit("vm-1", 8, "2Gi")
    assert await bell.look(5) == 0
    began = bell.clock.now

    for cpu in (5, "4500m", 4, 3, 2, 1):
        await replica.permit("vm-1", cpu, "2Gi")
        await bell.look()
    last_change = bell.clock.now
    await bell.look(20)

    gaps = [b - a for a, b in zip(bell.times, bell.times[1:], strict=False)]
    assert bell.times[0] == began + A_LOOK  # the first is not put off
    assert min(gaps) >= RING_EVERY
    assert last_change <= bell.times[-1] <= last_change + RING_EVERY
    assert len(bell.times) == 3


async def test_a_change_during_a_ring_is_owed_another(bell: Bell, replica: Replica) -> None:
    async def shrink() -> None:
        await replica.permit("vm-1", 1, "1Gi")

    bell.meanwhile = shrink
    await replica.permit("vm-1", "1500m", "1Gi")

    assert await bell.look(20) == 2


async def test_a_ring_that_failed_is_owed_still(bell: Bell, replica: Replica) -> None:
    bell.troubles = [ClusterUnavailable("away")]
    await replica.permit("vm-1", 1, "1Gi")

    with pytest.raises(ClusterUnavailable):
        await bell.look()

    assert await bell.look(3) == 0  # no sooner than any other
    assert await bell.look(20) == 1


async def test_bell_is_silent_where_nobody_waits(bell: Bell, replica: Replica) -> None:
    bell.is_wanted = False
    await replica.permit("vm-1", 1, "1Gi")
    assert await bell.look(int(OWED_FOR / A_LOOK) + 1) == 0

    bell.is_wanted = True

    assert await bell.look(20) == 0


async def test_a_pod_that_is_heard_of_a_little_late_has_waited(
    bell: Bell, replica: Replica
) -> None:
    """It was refused, room came back, and its own event was later than that."""
    bell.is_wanted = False
    await replica.permit("vm-1", 1, "1Gi")
    await bell.look(4)

    bell.is_wanted = True

    assert await bell.look(20) == 1


async def test_bell_is_silent_for_room_that_is_taken(bell: Bell, replica: Replica) -> None:
    await replica.permit("vm-1", 4, "4Gi")
    assert await bell.look() == 0
    await replica.reserve(pod_json("u2"))

    assert await bell.look(20) == 0


async def test_bell_rings_for_room_that_was_gone_between_two_looks_only(
    bell: Bell, replica: Replica
) -> None:
    """Whom a short hold had refused was not tried again: a refused Binding takes 20 ms."""
    await replica.reserve(pod_json("u2"))
    await replica.unreserve(pod_json("u2"))

    assert await bell.look(20) == 1


async def test_a_new_leader_rings_once_for_what_the_last_one_may_have_left(
    bell: Bell, replica: Replica
) -> None:
    """Its last change may have been just before it died."""
    other = Bell(replica)
    assert await other.look(20) == 1

    bell.clock.now += STALE_AFTER

    assert await bell.look(20) == 1


async def test_looks_keep_no_nodes_that_are_gone(
    bell: Bell, replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.node("n2")
    await replica.catch_up()
    await bell.look()
    token = await replica.raw.hget(Keys("default").key("meta"), "fence")
    leader = Leadership(token.decode())
    await replica.ledger.delete_node("n2", uid="uid-n2", leader=leader)  # type: ignore[arg-type]

    await bell.look()

    assert list(bell.watch._seen) == ["n1"]


async def test_thawed_grants_ring_though_no_node_has_changed(bell: Bell, replica: Replica) -> None:
    """kube-scheduler would try a pod that was refused while frozen after minutes only."""
    why = {"who": "ann", "why": "test"}
    await replica.ledger.freeze_grants(None, context=why)
    assert await bell.look(8) == 0

    await replica.ledger.thaw_grants(None, context=why)

    assert await bell.look(8) == 1
