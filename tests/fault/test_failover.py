"""Something dies: who notices, and for how long. Real processes, so these take their time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.fault.chaos.probe import Prober
from tests.fault.chaos.watch import Watcher
from tests.fault.kit.calls import NO_ANSWER, Caller, calling, small_pods
from tests.fault.kit.stage import Stage, stage, until
from tests.history.scene import some_nodes
from tests.history.workload import cluster_objects, vm_name

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

NODES = some_nodes(2)
OBJECTS = [
    *cluster_objects(NODES, clients=1),
    *small_pods(),
]


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
async def test_killed_replica_costs_callers_of_others_nothing_and_its_own_their_connections(
    leads: bool,
) -> None:
    async with stage(OBJECTS) as scene, calling(scene, "n1") as callers:
        leader = await scene.leader()
        victim = leader if leads else next(each for each in scene.fleet if each is not leader)
        await until(lambda: answered(callers, 20), within=20)

        victim.process.kill()
        for each in callers.values():
            each.answers.clear()
        await asyncio.sleep(6)  # a lease's lifetime and more

        own = callers.pop(victim.name)
        assert {each.status for each in own.answers} == {NO_ANSWER}
        for each in callers.values():
            assert len(each.answers) > 20
            assert [said for said in each.answers if not said.is_success] == []
        victim.start()
        await until(scene.is_well, within=60)


async def answered(callers: dict[str, Caller], times: int) -> bool:
    return all(len(each.answers) >= times for each in callers.values())


async def test_grants_resume_within_15_s_of_the_sentinels_decision_after_the_primary_was_killed(
    record_property: Callable[[str, object], None],
) -> None:
    async with stage(OBJECTS) as scene, working(scene) as (watcher, prober):
        await until(lambda: grants(prober, since=0), within=30)
        (await scene.primary()).kill()
        killed = time.monotonic()

        await until(lambda: has_decided(watcher), within=30)
        decided, _ = watcher.primaries[-1]
        await until(lambda: grants(prober, since=decided), within=60)

        resumed = prober.resumed(decided)
        assert resumed is not None
        record_property(
            "printed",
            f"primary killed: decided after {decided - killed:.1f} s, "
            f"grants resumed {resumed:.1f} s after that",
        )
        assert resumed < 15
        assert watcher.problems == []


@asynccontextmanager
async def working(scene: Stage) -> AsyncIterator[tuple[Watcher, Prober]]:
    """Both of them, at work."""
    watcher, prober = Watcher(scene.group), Prober(scene, "n0", vm_name(0))
    tasks = [asyncio.create_task(each.run()) for each in (watcher, prober)]
    try:
        yield watcher, prober
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def has_decided(watcher: Watcher) -> bool:
    return len(watcher.primaries) > 1


async def grants(prober: Prober, *, since: float) -> bool:
    return prober.resumed(since) is not None
