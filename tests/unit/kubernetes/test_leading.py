"""One leader at a time: building, promotions, and when the lease is given up."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from tests.support.cluster_double import runs_vm
from tests.support.fake_api.faults import Held, Refuse, Silence
from tests.support.fake_api.samples import Json, pod
from tests.support.fake_api.server import FakeApi
from tests.support.live import (
    FOLLOWING,
    Clock,
    Live,
    StartLive,
)

from autoscale_enforcer.background import Background
from autoscale_enforcer.cluster.kubernetes.reconciler import ReconcilerSettings
from autoscale_enforcer.cluster.kubernetes.transport import ApiSettings
from autoscale_enforcer.cluster.upkeep import LostLead
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.ledger import Ledger

MIB = 1 << 20
KEYS = Keys("default")
TAKES_A_CORE = b"""{
    "nodeDefaults": {
        "cpu": {"watermark": 0.9, "system": "1"},
        "memory": {"watermark": 0.9, "system": "0"},
        "computeUnit": {"vCPUs": 0.25, "mem": 1}
    },
    "memBlockSize": "1Gi"
}"""


def vm_pod(name: str, node: str = "n1", **runs: Any) -> Json:
    """A VM's pod, its VM of the same name."""
    return pod(name, node=node, uid=f"u-{name}", **runs_vm(vm=name, **runs))


def migration(vm: str, source: str, phase: str = "Running") -> Json:
    return {
        "metadata": {"name": f"move-{vm}"},
        "spec": {"vmName": vm},
        "status": {"phase": phase, "sourcePodName": source},
    }


async def state(live: Live) -> str:
    return (await live.front.ledger.look()).state


# Building


async def test_changes_during_a_build_are_in_what_is_published(
    start_live: StartLive, api: FakeApi
) -> None:
    live = await start_live()
    api.store.create("pods", pod("goes", node="n1", uid="u1"))
    load = live.reconciler.load_pods

    async def loading(listed: Any) -> None:
        await load(listed)
        api.store.remove("pods", "default/goes")
        api.store.create("pods", pod("comes", node="n1", uid="u2"))

    live.reconciler.load_pods = loading  # type: ignore[method-assign]
    await live.lead()

    await live.until_at("u2", "bound n1")
    await live.until_at("u1", "unknown")


async def test_a_build_that_is_given_up_leaves_no_pod_waiting(
    start_live: StartLive, api: FakeApi
) -> None:
    live = await start_live()
    api.store.create("pods", pod("web", node="n1", uid="u1"))
    load, waiting = live.reconciler.load_pods, list[float]()

    async def loading(listed: Any) -> None:
        await load(listed)
        waiting.append(live.reconciler.readings()["facts_waiting"])
        raise LedgerUnavailable("away")

    live.reconciler.load_pods = loading  # type: ignore[method-assign]
    with pytest.raises(LedgerUnavailable):
        await live.lead()
    await live.reconciler.stop()

    # Of both the node is in the pump.
    assert waiting == [2]
    assert live.reconciler.readings()["facts_waiting"] == 1


async def test_nothing_is_collected_while_the_first_pods_are_in_memory(
    start_live: StartLive, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each full collection walked all of them, and stopped the process for so long."""
    live = await start_live()
    api.store.create("pods", pod("web", node="n1", uid="u1", cpu="2"))
    load, usual, thresholds = Ledger.load_pods, gc.get_threshold(), list[int]()

    async def watched(self: Ledger, *facts: Any, **more: Any) -> Any:
        thresholds.append(gc.get_threshold()[2])
        return await load(self, *facts, **more)

    monkeypatch.setattr(Ledger, "load_pods", watched)

    await live.lead()

    assert min(thresholds) > 1_000_000
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("way", ["load_pods", "put_node"])
async def test_a_build_that_the_ledger_interrupts_is_not_published(
    start_live: StartLive, api: FakeApi, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """What went wrong while facts were loaded was lost, and half of the books were published."""
    live = await start_live()
    api.store.create("pods", pod("web", node="n1", uid="u1", cpu="2"))
    put, troubles = getattr(Ledger, way), [LedgerUnavailable("away")]

    async def troubled(self: Ledger, *facts: Any, **more: Any) -> Any:
        if troubles:
            raise troubles.pop()
        return await put(self, *facts, **more)

    monkeypatch.setattr(Ledger, way, troubled)

    with pytest.raises(LedgerUnavailable):
        await live.lead()

    assert await state(live) == "UNBUILT"
    await live.lead()
    assert await live.reserved() == (2000, 64)


async def test_a_lost_ledger_is_built_anew_after_the_bind_budget(
    start_live: StartLive, api: FakeApi
) -> None:
    budget = timedelta(seconds=1.5)
    live = await start_live(bind_budget=budget)
    api.store.create("pods", pod("web", node="n1", uid="u1", cpu="2"))
    await live.lead()
    await live.front.raw.flushall()
    assert await state(live) == "UNBUILT"
    began = asyncio.get_running_loop().time()

    building = asyncio.ensure_future(live.lead())
    refused = await live.front.reserve(pod("new", uid="u2", namespace="default"))
    filtered = await live.front.filter(pod("new", uid="u2", namespace="default"))
    await building

    assert asyncio.get_running_loop().time() - began >= budget.total_seconds()
    assert (refused[0], filtered.error) == ("Error", "the ledger is not built")
    assert await live.reserved() == (2000, 64)
    assert await live.front.raw.hget(KEYS.key("meta"), "cluster") == b"uid-of-kube-system"
    assert await live.verify() == []


async def test_a_replica_that_starts_after_a_loss_waits_too(start_live: StartLive) -> None:
    """It had led no lost books and believed the list at once; that an empty Redis was never
    anything else, nobody can tell."""
    live = await start_live(bind_budget=timedelta(hours=1))

    building = asyncio.ensure_future(live.lead())

    await live.until(lambda: live.front.raw.hexists(KEYS.key("meta"), "lost_ms"), True)
    assert await state(live) == "UNBUILT"
    assert len(live.api.requests("list", "pods")) == 0
    building.cancel()
    await asyncio.gather(building, return_exceptions=True)


async def test_the_wait_is_counted_from_the_loss_whoever_leads(
    start_live: StartLive, api: FakeApi
) -> None:
    """Each new leader waited for a whole budget, or for none."""
    hour = timedelta(hours=1)
    first = await start_live(bind_budget=hour)
    building = asyncio.ensure_future(first.lead())
    await first.until(lambda: first.front.raw.hexists(KEYS.key("meta"), "lost_ms"), True)
    building.cancel()
    await asyncio.gather(building, return_exceptions=True)
    await first.leader.resign()
    long_ago = await first.front.ledger.stamp() // 1000 - hour // timedelta(milliseconds=1)
    await first.front.raw.hset(KEYS.key("meta"), "lost_ms", str(long_ago))
    other = await start_live(name="r2", bind_budget=hour)

    await other.lead()

    assert await state(other) == "SETTLED"
    assert not await other.front.raw.hexists(KEYS.key("meta"), "lost_ms")


async def test_nobody_decides_on_books_that_are_newer_than_the_cluster(
    live: Live, start_live: StartLive, api: FakeApi
) -> None:
    """Other replicas went on with the old books until the new ones were published, and what they
    held then was lost with a Binding on its way."""
    other = await start_live(name="r2")
    budget = timedelta(seconds=1.5)
    live.leader._settings = replace(live.leader._settings, bind_budget=budget)
    live.leader._disbelieved = "the cluster went back"  # as a compare finds out
    building = asyncio.ensure_future(live.lead())
    await live.until(lambda: live.front.raw.hexists(KEYS.key("meta"), "lost_ms"), True)
    began = asyncio.get_running_loop().time()

    refused = await other.front.reserve(pod("new", uid="u2", namespace="default"))
    bound = await other.front.bind(pod("new", uid="u2", namespace="default"))
    # One that was on its way when the books were given up.
    api.store.create("pods", pod("late", node="n1", uid="u1", cpu="2"))
    await building

    assert (refused, bound) == (("Error", ["the ledger is not built"]), "the ledger is not built")
    assert asyncio.get_running_loop().time() - began > budget.total_seconds() / 2
    assert await live.where("u1") == "bound n1"
    assert ("lost", "-") in [
        (what, uid) for what, uid, why in await live.journal() if b"back" in why
    ]
    assert await live.verify() == []


async def test_one_that_saw_the_books_waits_before_it_builds_them(
    live: Live, start_live: StartLive
) -> None:
    """Only who had led before waited, though any replica may have sent a Binding."""
    other = await start_live(name="r2", bind_budget=timedelta(hours=1))
    with pytest.raises(LostLead):
        await other.lead()
    await live.front.raw.flushall()

    building = asyncio.ensure_future(other.lead())
    await live.until(lambda: live.front.raw.exists(KEYS.key("lease")), 1)

    assert await state(live) == "UNBUILT"
    building.cancel()
    await asyncio.gather(building, return_exceptions=True)


async def test_a_ledger_that_is_another_clusters_by_now_is_not_built(start_live: StartLive) -> None:
    live = await start_live()
    await live.front.raw.hset(KEYS.key("meta"), "cluster", "another")

    with pytest.raises(ClusterUnavailable, match="is that of the cluster another"):
        await live.lead()


# After a promotion


async def test_suspect_books_are_settled_by_a_compare_begun_after_the_bind_budget(
    start_live: StartLive, api: FakeApi
) -> None:
    budget = timedelta(seconds=1)
    live = await start_live(bind_budget=budget)
    await live.lead()
    lists = len(api.requests("list", "pods"))
    await live.front.loses_its_primary()
    assert await state(live) == "SUSPECT"
    began = asyncio.get_running_loop().time()

    comparing_ = asyncio.ensure_future(live.lead())
    await asyncio.sleep(0)
    assert (await live.front.reserve(pod("x", uid="ux", namespace="default")))[0] == "Error"
    await comparing_

    assert asyncio.get_running_loop().time() - began >= budget.total_seconds()
    assert len(api.requests("list", "pods")) == lists + 1
    assert await state(live) == "SETTLED"


async def test_an_epoch_that_began_during_the_compare_stays_suspect(live: Live) -> None:
    """It was settled though its own compare had not begun."""
    await live.front.loses_its_primary()
    assert await state(live) == "SUSPECT"
    compare = live.reconciler.compare

    async def losing_it_again(leader: Leadership) -> None:
        await compare(leader)
        await live.front.loses_its_primary()
        await live.front.ledger.look()

    live.reconciler.compare = losing_it_again  # type: ignore[method-assign]
    with pytest.raises(LedgerUnavailable):
        await live.lead()
    assert await state(live) == "SUSPECT"

    live.reconciler.compare = compare  # type: ignore[method-assign]
    await live.lead()
    assert await state(live) == "SETTLED"


# Comparing


async def test_a_compare_for_a_new_config_that_was_broken_off_is_done_all_the_same(
    live: Live, api: FakeApi
) -> None:
    """The ledger was away for a moment. Nothing was followed any more for minutes, while it led,
    and the nodes kept the capacity of the old config.
    """
    held = Held()
    api.next("list", "nodes", held)
    assert live.config.offer(TAKES_A_CORE, version="2")
    turn = asyncio.ensure_future(live.leader._try_turn())
    await held.arrived.wait()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(live.leader, "_renew", AsyncMock(side_effect=LedgerUnavailable("away")))
        await turn
    held.release.set()

    await live.leader._try_turn()

    api.store.create("pods", pod("new", node="n1", uid="u1", cpu="1"))
    await live.until_at("u1", "bound n1")
    assert (await live.front.node()).cap_cpu == 7000


# Leading


async def test_a_lease_is_reckoned_from_when_it_was_asked_for(start_live: StartLive) -> None:
    """It was reckoned from the answer, so a slow one made two replicas believe that they lead."""
    clock = Clock()
    live = await start_live(clock=clock, lease=timedelta(seconds=3))
    take = live.front.ledger.take_lease

    async def slowly(**words: Any) -> Any:
        answer = await take(**words)
        clock.now += 2
        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(live.front.ledger, "take_lease", slowly)
        await live.lead()

    assert live.leader.is_leading
    clock.now += 1.5
    assert not live.leader.is_leading


async def test_a_paused_former_leader_writes_nothing(
    live: Live, start_live: StartLive, api: FakeApi
) -> None:
    await live.front.raw.delete(KEYS.key("lease"))  # it has lapsed
    other = await start_live(name="r2")
    await other.lead()
    api.store.create("pods", pod("web", node="n1", uid="u1"))
    await other.until_at("u1", "bound n1")
    before = await other.front.dump()

    async def has_noticed() -> bool:
        try:
            live.reconciler.check()
        except LostLead:
            return True
        return False

    await live.until(has_noticed, True)
    await live.leader._try_turn()

    assert await other.front.dump() == before
    assert not live.leader.is_leading
    assert live.reconciler._tasks == []


def test_a_leader_outlasts_one_silent_watch_and_a_quiet_one_after_it() -> None:
    """It gave the lease up while the next watch, which had nothing to tell, was in order."""
    settings, api = ReconcilerSettings(), ApiSettings()

    longest = settings.watches.watch_lasts * 1.25

    silent = longest + api.watch_slack
    assert silent + settings.watches.pause + longest < settings.silence


async def test_a_leader_whose_watch_is_silent_gives_the_lease_up(
    start_live: StartLive, api: FakeApi
) -> None:
    live = await start_live(following=replace(FOLLOWING, silence=timedelta(seconds=1)))
    silent = Silence()
    api.next("watch", "pods", silent)
    await live.lead()

    async def is_silent() -> bool:
        await live.leader._try_turn()
        return not await live.front.raw.exists(KEYS.key("lease"))

    await live.until(is_silent, True)
    silent.over.set()

    assert not live.leader.is_leading


async def sweeping(start_live: StartLive, api: FakeApi, held: Held) -> tuple[Live, Clock]:
    """A leader in the middle of a sweep, which waits for an API that hangs."""
    clock = Clock()
    live = await start_live(
        clock=clock,
        replica={"hold_lifetime": timedelta(milliseconds=1)},
        limits=ApiSettings(request=timedelta(hours=1)),
    )
    api.store.create("pods", pod("lapses", uid="u1", cpu="2"))
    await live.lead()
    await live.front.reserve(api.store.get("pods", "default/lapses"))
    await live.until_at("u1", "held n1")
    api.always("get", "pods", held)
    while not held.arrived.is_set():
        clock.now += 6
        async with asyncio.timeout(30):
            await live.lead()
        await asyncio.sleep(0)
    return live, clock


async def test_a_sweep_that_waits_for_the_api_holds_up_no_turn(
    start_live: StartLive, api: FakeApi
) -> None:
    """It was part of one, and silent watches were seen only after it."""
    held = Held()
    live, clock = await sweeping(start_live, api, held)
    asked = len(api.requests("get", "pods"))

    for _ in range(3):
        clock.now += 6
        async with asyncio.timeout(30):
            await live.lead()
    assert len(api.requests("get", "pods")) == asked  # one sweep at a time
    held.release.set()

    await live.until_at("u1", "pending -")


async def test_a_leader_that_gives_the_lease_up_ends_its_sweep(
    start_live: StartLive, api: FakeApi
) -> None:
    held = Held()
    live, _ = await sweeping(start_live, api, held)
    live.reconciler.check = Mock(side_effect=ClusterUnavailable("silent"))  # type: ignore[method-assign]

    await live.leader._try_turn()

    assert not await live.front.raw.exists(KEYS.key("lease"))
    assert [each for each in asyncio.all_tasks() if each.get_name() == "sweep"] == []
    assert await live.where("u1") == "held n1"
    held.release.set()


async def test_what_ends_a_sweep_ends_a_later_turn(start_live: StartLive, api: FakeApi) -> None:
    clock = Clock()
    live = await start_live(clock=clock)
    sweep = AsyncMock(side_effect=[ClusterUnavailable("no list"), None])
    live.leader._sweeper.sweep = sweep  # type: ignore[method-assign]
    await live.lead()
    await asyncio.sleep(0)

    clock.now += 6
    with pytest.raises(ClusterUnavailable, match="no list"):
        await live.lead()
    clock.now += 6
    await live.lead()
    await asyncio.sleep(0)

    assert sweep.await_count == 2


async def test_one_that_cannot_list_takes_no_lease(
    live: Live, start_live: StartLive, api: FakeApi
) -> None:
    """It took the lease again from those that see the cluster, and listed only then."""
    await live.leader.resign()
    live.leader._is_blind = True
    api.always("list", "nodes", Refuse(503, "ServiceUnavailable"))

    with pytest.raises(ClusterUnavailable):
        await live.lead()
    assert not await live.front.raw.exists(KEYS.key("lease"))

    api.always("list", "nodes", None)
    await live.lead()
    assert live.leader.is_leading


async def test_a_leader_whose_list_never_comes_gives_the_lease_up(
    start_live: StartLive, api: FakeApi
) -> None:
    live = await start_live(following=replace(FOLLOWING, list_silence=timedelta(milliseconds=200)))
    api.always("list", "pods", Silence(with_head=False))

    with pytest.raises(ClusterUnavailable, match="silent"):
        await live.lead()

    assert await state(live) == "UNBUILT"


async def test_run_leads_and_leaves_at_once_when_it_ends(
    live: Live, start_live: StartLive, api: FakeApi
) -> None:
    """Its lease was left to lapse, or even taken again, when it ended in the middle of a turn."""
    await live.leader.resign()
    async with Background() as background:
        background.start("leader", live.leader.run)

        async def leads() -> bool:
            return live.leader.is_leading

        await live.until(leads, True)

    assert not await live.front.raw.exists(KEYS.key("lease"))
    assert live.reconciler._tasks == []


async def test_run_begins_anew_after_a_bug(
    live: Live, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept the lease and failed in every turn."""
    monkeypatch.setattr("autoscale_enforcer.background.RESTART_AFTER", 0.001)
    bugs = [RuntimeError("a bug")]

    def check() -> None:
        if bugs:
            raise bugs.pop()

    monkeypatch.setattr(live.reconciler, "check", check)
    async with Background() as background:
        background.start("leader", live.leader.run)

        async def has_recovered() -> bool:
            return bool(background.failures) and live.leader.is_leading

        await live.until(has_recovered, True)

    assert background.failures == {"leader": 1}


async def test_books_that_vanish_while_a_new_leader_compares_them_are_built_anew(
    live: Live, start_live: StartLive, api: FakeApi
) -> None:
    """The compare waited for books, and the build for the compare: nobody was answered any more."""
    other, listed = await start_live(name="r2"), Held()
    await live.leader.resign()
    api.next("list", "nodes", None, listed)  # it proves first that it can list
    turn = asyncio.create_task(other.lead())
    await listed.arrived.wait()
    await live.front.raw.flushdb()
    listed.release.set()

    with pytest.raises(LedgerUnavailable):
        await turn
    await other.lead()

    assert await state(other) == "SETTLED"
