"""Rows 26, 28, 31 and 33 of the field reports on real replicas: what is in several processes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest
import redis.asyncio

from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.objects.quantity import cpu_milli
from tests.fault.chaos.watch import client_of
from tests.fault.kit.calls import ask, bind, filter_nodes, reserve
from tests.fault.kit.cluster import BEACON
from tests.fault.kit.faults import skewed
from tests.fault.kit.fleet import Serving
from tests.fault.kit.redis_group import Member
from tests.fault.kit.stage import KEYS, Stage, stage, until
from tests.history.clients import GIB, UNIT, Json, plain_pod
from tests.history.workload import ApiCluster, cluster_objects, vm_name

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

AT_ONCE = "--settle-after=0s"
"""Nodes do not wait for their VMs to report when the books are built."""
CPU = 1000
NODE = Resources(8 * CPU, 32 * GIB)


def cluster(*, vms: int = 0, **nodes: Resources) -> list[Json]:
    """These nodes, or n1 of the field reports; VMs go round them."""
    return cluster_objects(nodes or {"n1": NODE}, clients=vms)


async def created(scene: Stage, name: str, cpu: int = CPU) -> Json:
    """A pod of that size that the cluster knows, unbound."""
    made = plain_pod(name, Resources(cpu, GIB))
    await ApiCluster(scene.cluster.url, scene.http).create(made)
    return made


async def where(scene: Stage, made: Json) -> str:
    """`stage node` of a pod in the books."""
    row = await scene.row_of(made["metadata"]["uid"])
    return f"{row.stage} {row.node}" if row else "unknown"


async def is_at(scene: Stage, made: Json, place: str) -> bool:
    return await where(scene, made) == place


# 26


async def test_hang_ups_in_mid_bind_leave_no_answer_behind_and_no_half_bind() -> None:
    """Field report 26: a cancelled call left its reply behind for the next caller."""
    size, count = Resources(400_000, 4_000 * GIB), 50
    async with stage(cluster(vms=count, n1=size), "--hold-lifetime=3s", AT_ONCE) as scene:
        pods = [await created(scene, f"p{number}") for number in range(count)]
        replica = next(iter(scene.fleet))
        for each in pods:
            assert (await filter_nodes(scene, replica, each, "n1")).is_success
        for link in replica.redis_side:
            link.delay = 0.05  # both ways

        told, _ = await asyncio.gather(
            asyncio.gather(*(all_sizes(scene, replica, number) for number in range(count))),
            asyncio.gather(
                *(hang_up(scene, replica, each, after=0.01 * at) for at, each in enumerate(pods))
            ),
        )

        assert [wrong for each in told for wrong in each] == []
        for link in replica.redis_side:
            link.heal()
        await until(lambda: are_decided(scene, pods), within=30)
        bound = await bound_in_cluster(scene)
        for each in pods:
            is_bound = each["metadata"]["name"] in bound
            assert await where(scene, each) == ("bound n1" if is_bound else "pending -")
        assert bound, "no hang-up came in mid-bind"


async def all_sizes(scene: Stage, replica: Serving, number: int) -> list[str]:
    """Answers that are not about this VM: it asks for a size that is nobody else's."""
    size = Resources(UNIT.cpu + number, GIB)
    told = [await ask(scene, replica, vm_name(number), size) for _ in range(3)]
    right = f"{size.cpu}m"
    return [str(said) for said in told if said.body.get("permit", {}).get("vCPUs") != right]


async def hang_up(scene: Stage, replica: Serving, made: Json, *, after: float) -> None:
    """Bind, and go away in the middle of it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(after):
            await bind(scene, replica, made, "n1")


async def are_decided(scene: Stage, pods: list[Json]) -> bool:
    """None of them is on its way any more."""
    places = [await where(scene, each) for each in pods]
    return not any(place.startswith(("held", "binding")) for place in places)


async def bound_in_cluster(scene: Stage) -> set[str]:
    found = await scene.cluster.pods()
    return {each["metadata"]["name"] for each in found if each["spec"].get("nodeName")}


# 28


async def test_permit_that_a_promoted_replica_lacks_is_back_before_its_node_gives_more() -> None:
    """Field report 28 (a): acknowledged writes lost at a failover."""
    small = Resources(4 * CPU + 1, 32 * GIB)
    async with stage(cluster(vms=2, n1=small), "--settle-after=60s") as scene:
        first, second = vm_name(0), vm_name(1)
        for vm in (first, second):
            await permit(scene, vm, UNIT.cpu)  # the node waits for nobody any more
        primary = await alone(scene)
        assert await permit(scene, first, 3 * CPU) == 3 * CPU
        primary.kill()
        for each in scene.group.others(primary):
            each.start()  # from disks that have never heard of it

        await until(scene.is_settled, within=60)
        before = await permit(scene, second, 3 * CPU)
        again = await permit(scene, first, 3 * CPU, last=3 * CPU)
        after = await permit(scene, second, 3 * CPU)

        assert (before, again, after) == (UNIT.cpu, 3 * CPU, 4 * CPU - 3 * CPU)
        primary.start()


async def alone(scene: Stage) -> Member:
    """The primary, which goes on without its replicas."""
    primary = await scene.primary()
    for each in scene.group.others(primary):
        each.kill()
    async with client_of(primary) as client:
        await client.config_set("min-replicas-to-write", 0)
    return primary


async def permit(scene: Stage, vm: str, cpu: int, *, last: int = 0) -> int:
    """What the VM is told, at any replica, in millicores; asked for until it is told something."""

    given = Resources(last, GIB) if last else None
    async with asyncio.timeout(30):
        while True:
            said = await ask(scene, next(iter(scene.fleet)), vm, Resources(cpu, GIB), last=given)
            if said.status == 200:
                return cpu_milli(said.body["permit"]["vCPUs"])
            await asyncio.sleep(0.1)


async def test_evicted_books_are_built_anew_and_are_no_empty_nodes() -> None:
    """Field report 28 (b): keys evicted; no key was taken for an empty node."""
    async with stage(cluster(vms=1), AT_ONCE) as scene, client_of(await scene.primary()) as client:
        large = await created(scene, "large", 7 * CPU)
        replica = next(iter(scene.fleet))
        assert (await bind(scene, replica, large, "n1")).is_success
        other = await created(scene, "other", 2 * CPU)

        await client.config_set("maxmemory-policy", "allkeys-lru")
        await client.config_set("maxmemory", 1)
        await until(lambda: lacks_books(client), within=10)
        refused = await reserve(scene, replica, other, "n1")
        await client.config_set("maxmemory", 0)
        await until(scene.is_well, within=60)

        assert not refused.is_success
        assert await where(scene, large) == "bound n1"
        assert (await reserve(scene, replica, other, "n1")).body["Code"] == "Unschedulable"


async def lacks_books(client: redis.asyncio.Redis) -> bool:
    return not await client.exists(KEYS.key("pods"))


async def test_full_memory_fails_the_call_and_leaves_the_books_as_they_were() -> None:
    """Field report 28 (c): scripts stopped by a memory limit."""
    async with stage(cluster(vms=1), AT_ONCE) as scene, client_of(await scene.primary()) as client:
        held, more = await created(scene, "held"), await created(scene, "more")
        replica = next(iter(scene.fleet))
        assert (await reserve(scene, replica, held, "n1")).is_success
        before = await rows(client)

        await client.config_set("maxmemory", 1)
        answers = [
            await reserve(scene, replica, more, "n1"),
            await bind(scene, replica, held, "n1"),
            await ask(scene, replica, vm_name(0), Resources(CPU, GIB)),
        ]
        full = await rows(client)
        await client.config_set("maxmemory", 0)
        await until(scene.is_well, within=60)

        assert [said.is_success for said in answers] == [False] * 3
        assert full == before
        assert (await reserve(scene, replica, more, "n1")).is_success
        async with scene.http.get(f"{replica.admin}/api/v1/verify") as answer:
            assert await answer.json() == {"breaches": []}


async def rows(client: redis.asyncio.Redis) -> list[Any]:
    return [await client.hgetall(KEYS.key(key)) for key in ("nodes", "pods")]


# 31


async def test_bursts_over_all_replicas_stay_within_the_node() -> None:
    """Field report 31: each replica limited from its own memory."""
    binds, grows = Resources(4 * CPU, 64 * GIB), Resources(4 * CPU + 3 * UNIT.cpu + 1, 64 * GIB)
    # The beacon goes to the last node, with its one millicore.
    objects = cluster_objects({"n2": binds}, clients=0) + cluster_objects({"n1": grows}, clients=3)
    async with stage(objects, AT_ONCE) as scene:
        fleet = list(scene.fleet)
        pods = [await created(scene, f"p{number}", 2 * CPU) for number in range(10)]
        wanted = Resources(UNIT.cpu + 2 * CPU, GIB)

        asked = (ask(scene, each, vm_name(at), wanted) for at, each in enumerate(fleet))
        permits = [cpu_milli(said.body["permit"]["vCPUs"]) for said in await asyncio.gather(*asked)]
        bound = await asyncio.gather(
            *(bind(scene, fleet[at % 3], each, "n2") for at, each in enumerate(pods))
        )
        late = await created(scene, "late", 2 * CPU)
        seen = [(await filter_nodes(scene, each, late, "n2", "n5")).body for each in fleet]

        assert sorted(permits) == [UNIT.cpu, wanted.cpu, wanted.cpu]
        assert sum(said.is_success for said in bound) == 2
        for body in seen:
            assert body["NodeNames"] == []
            assert set(body["FailedNodes"]) == {"n2", "n5"}


# 33


async def test_hold_of_a_killed_replica_blocks_nobody_and_is_decided_after_its_time() -> None:
    """Field report 33: a crash between hold and bind; clean-up by clocks that differ by 90 s."""
    async with stage(
        cluster(n1=Resources(100 * CPU, 400 * GIB)), "--hold-lifetime=8s", AT_ONCE
    ) as scene:
        first, second = await with_skewed_others(scene)
        names = ("held", "cut", "free")
        held, cut, free = [await created(scene, name) for name in names]
        assert (await reserve(scene, first, held, "n1")).is_success
        first.api_link.cut()
        binding = asyncio.create_task(bind(scene, first, cut, "n1"))
        await until(lambda: is_at(scene, cut, "binding n1"), within=5)
        began = time.monotonic()

        first.process.kill()
        await binding
        other = await bind(scene, second, free, "n1")
        places = set()
        while time.monotonic() < began + 6:
            places.add((await where(scene, held), await where(scene, cut)))
            await asyncio.sleep(0.2)
        await until(lambda: is_at(scene, held, "pending -"), within=20)
        await until(lambda: is_at(scene, cut, "pending -"), within=20)
        first.api_link.heal()  # the Binding arrives, later than anybody thought
        await until(scene.follows, within=20)

        assert other.is_success
        assert places == {("held n1", "binding n1")}
        assert await bound_in_cluster(scene) == {"free", BEACON}
        first.start()
        await until(scene.is_well, within=60)


async def with_skewed_others(scene: Stage) -> tuple[Serving, Serving]:
    """A replica with the right time, and another; two are 90 s off, and one of them leads."""
    first, *others = scene.fleet
    for each, offset in zip(others, ("+90s", "-90s"), strict=True):
        each.process.stop()
        each.start(skewed(offset))
    await until(scene.is_ready, within=60)
    if await scene.leader() is first:
        first.process.stop()
        await until(lambda: is_led_by_another(scene, first), within=20)
        first.start()
    await until(scene.is_well, within=60)
    return first, others[0]


async def is_led_by_another(scene: Stage, old: Serving) -> bool:
    return await scene.leader() is not old
