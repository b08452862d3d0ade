"""Redis is emptied under load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.objects.quantity import cpu_milli, mem_bytes
from tests.fault.chaos.known import Witness
from tests.fault.chaos.probe import Prober
from tests.fault.chaos.watch import Watcher, client_of
from tests.fault.kit.calls import ask, small_pods
from tests.fault.kit.cluster import vms_on
from tests.fault.kit.stage import Stage, stage, until
from tests.history.clients import UNIT
from tests.history.scene import some_nodes
from tests.history.workload import ApiCluster, Targets, cluster_objects, run, vm_name

CLIENTS = 16
VMS = 8
"""More VMs, whose agents keep still until the books are there again."""
BUSY = some_nodes(8)
STILL = {"still": Resources(100_000, 400 << 30)}
PROBED = {"probed": Resources(8_000, 32 << 30)}
SECONDS = 30
"""Within which the service is to answer again."""


@dataclass(slots=True)
class Scene:
    """A stage with everything at work."""

    stage: Stage
    witness: Witness
    watcher: Watcher
    prober: Prober


@asynccontextmanager
async def at_work(folder: Path, *, nodes: int, pods: int) -> AsyncIterator[Scene]:
    """Clients, probes and a watcher, in a cluster with so many more nodes and heavy pods."""
    objects = [
        *cluster_objects(BUSY | STILL | PROBED, clients=0),
        *vms_on(BUSY, range(CLIENTS)),
        *vms_on(STILL, range(CLIENTS, CLIENTS + VMS)),
        *vms_on(PROBED, range(CLIENTS + VMS, CLIENTS + VMS + 1)),
        *small_pods(),
    ]
    async with stage(objects, "--durability=replica", nodes=nodes, pods=pods) as made:
        with Witness(folder / "history", hold_seconds=30) as witness:
            scene = Scene(
                made, witness, Watcher(made.group), Prober(made, "probed", vm_name(CLIENTS + VMS))
            )
            is_over = asyncio.Event()
            tasks = [
                asyncio.create_task(scene.watcher.run()),
                asyncio.create_task(scene.prober.run()),
            ]
            clients = asyncio.create_task(
                run(targets(made), seed=1, clients=CLIENTS, until=is_over.is_set, recorder=witness)
            )
            try:
                yield scene
            finally:
                is_over.set()
                await clients
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def targets(made: Stage) -> Targets:
    fleet = list(made.fleet)
    return Targets(
        extenders=[each.extender for each in fleet],
        agents=[each.agent.rstrip("/") for each in fleet],
        admins=[each.admin for each in fleet],
        nodes=BUSY,
        cluster=ApiCluster(made.cluster.url, made.http),
    )


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("nodes", "pods"),
    [
        pytest.param(50, 500, marks=pytest.mark.long, id="small"),
        pytest.param(5_000, 50_000, marks=pytest.mark.scale, id="large"),
    ],
)
async def test_emptied_redis_is_built_anew_within_30_s_with_every_permit_and_no_grant_before(
    nodes: int, pods: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    async with at_work(tmp_path, nodes=nodes, pods=pods) as scene:
        await until(lambda: grants(scene.prober, since=0), within=60)
        permits = {vm: await grown(scene.stage, vm) for vm in STILL_VMS}
        operations, builds = scene.witness.written, scene.watcher.entries["build"]
        async with client_of(await scene.stage.primary()) as client:
            await client.flushall()
        emptied = time.monotonic()

        await until(lambda: grants(scene.prober, since=emptied + 1), within=120)
        answered = 1 + (scene.prober.resumed(emptied + 1) or 0)
        restored = {
            vm: await told(scene.stage, vm, last, last=last) for vm, last in permits.items()
        }
        await until(scene.stage.is_well, within=60)

    record_property("printed", f"{pods} pods: grants again after {answered:.1f} s")
    assert operations > 100, "there was hardly any load: this proves little"
    assert scene.watcher.entries["build"] == builds + 1
    assert scene.watcher.problems == []
    assert restored == permits
    assert answered <= SECONDS


STILL_VMS = [vm_name(CLIENTS + number) for number in range(VMS)]


async def grants(prober: Prober, *, since: float) -> bool:
    return prober.resumed(since) is not None


async def grown(scene: Stage, vm: str) -> Resources:
    """What the VM has after it has grown, of each another size."""
    units = 2 + STILL_VMS.index(vm) % 7
    return await told(scene, vm, Resources(units * UNIT.cpu, units * UNIT.mem))


async def told(
    scene: Stage, vm: str, wanted: Resources, *, last: Resources | None = None
) -> Resources:
    """The permit, from any replica."""
    said = await ask(scene, next(iter(scene.fleet)), vm, wanted, last=last)
    assert said.status == 200, said
    permit = said.body["permit"]
    return Resources(cpu_milli(permit["vCPUs"]), mem_bytes(permit["mem"]))
