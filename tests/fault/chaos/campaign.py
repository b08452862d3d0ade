"""One campaign: a well stage, clients at work, one fault after another, and a judgement."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from autoscale_enforcer.model.resources import Resources
from tests.fault.chaos.judge import Judge
from tests.fault.chaos.known import Witness
from tests.fault.chaos.probe import KINDS, Prober
from tests.fault.chaos.result import Happened, Plan, Result
from tests.fault.chaos.watch import Watcher
from tests.fault.kit.calls import small_pods
from tests.fault.kit.cluster import vms_on
from tests.fault.kit.faults import Fault, kinds
from tests.fault.kit.stage import Stage, stage, until
from tests.history.check import SECOND, check
from tests.history.effort import SearchSettings
from tests.history.record import read_history
from tests.history.scene import some_nodes
from tests.history.workload import ApiCluster, Targets, cluster_objects, vm_name
from tests.history.workload import run as run_clients

HOLD_SECONDS = 30
SEARCH = SearchSettings(hold_lifetime=HOLD_SECONDS * SECOND)
RECOVERY_SECONDS = 90
"""In which a fault must be over once it has ended."""
PROBED = "probe"


async def run(plan: Plan) -> Result:
    """The whole campaign; what it finds is in the result, and nothing is raised for it."""
    result = Result(plan.seed)
    capacities = nodes_of(plan)
    objects = [
        *cluster_objects({**capacities, PROBED: Resources(8000, 32 << 30)}, clients=0),
        *vms_on(capacities, range(plan.clients)),
        *vms_on({PROBED: Resources()}, range(plan.clients, plan.clients + 1)),
        *small_pods(),
    ]
    path = plan.folder / f"history-{plan.seed}.jsonl"
    async with stage(objects, "--durability=replica") as made:
        watcher = Watcher(made.group)
        prober = Prober(made, PROBED, vm_name(plan.clients))
        with Witness(path, hold_seconds=HOLD_SECONDS, durable=True) as witness:
            judge = Judge(made, witness, watcher, capacities, result)
            watcher.on_epoch = judge.note_epoch
            campaign = _Campaign(plan, made, witness, watcher, prober, result, judge)
            async with _background(watcher.run(), prober.run(), judge.audit_often()):
                await campaign.run(capacities)
            result.operations = witness.written + prober.calls
    say("the history ...")
    for wrong in check(read_history([path]), settings=SEARCH).counterexamples:
        (result.unexplained if wrong.is_proven else result.undecided).append(wrong.text)
    return result


@dataclass(slots=True)
class _Campaign:
    plan: Plan
    stage: Stage
    witness: Witness
    watcher: Watcher
    prober: Prober
    result: Result
    judge: Judge
    _holders: list[str] = field(default_factory=list)
    _agents: list[str] = field(default_factory=list)
    _is_over: bool = False

    async def run(self, capacities: dict[str, Resources]) -> None:
        targets = self._targets(capacities)
        clients = asyncio.ensure_future(
            run_clients(
                targets,
                seed=self.plan.seed,
                clients=self.plan.clients,
                until=lambda: self._is_over,
                recorder=self.witness,
            )
        )
        try:
            await asyncio.sleep(2)
            await self._faults()
        finally:
            self._is_over = True
            await clients
        say("quiet ...")
        await self.judge.judge()

    def _targets(self, capacities: dict[str, Resources]) -> Targets:
        fleet = list(self.stage.fleet)
        self._agents += [each.agent.rstrip("/") for each in fleet]
        return Targets(
            extenders=[each.extender for each in fleet],
            agents=self._agents,
            holders=self._holders,
            admins=[each.admin for each in fleet],
            nodes=capacities,
            cluster=ApiCluster(self.stage.cluster.url, self.stage.http),
        )

    # Faults

    async def _faults(self) -> None:
        chance = random.Random(self.plan.seed)
        every = {name: make for name, make in kinds(chance).items() if self.plan.only in name}
        queue: list[Fault] = []
        to_come = set(every)
        end = time.monotonic() + self.plan.minutes * 60
        while time.monotonic() < end or to_come:
            queue = queue or [every[name]() for name in chance.sample(sorted(every), len(every))]
            fault = await self._next(queue)
            to_come.discard(fault.name)
            await self._happen(fault)
            if self.result.breaches:
                return

    @contextmanager
    def _previous_asked(self) -> Iterator[None]:
        """Clients ask the previous release too, where it runs."""
        old = self.stage.previous
        if not old.process.is_running:
            yield
            return
        every = ((self._holders, old.extender), (self._agents, old.agent.rstrip("/")))
        for urls, url in every:
            urls.append(url)
        yield
        for urls, url in every:
            urls.remove(url)

    async def _next(self, queue: list[Fault]) -> Fault:
        """The first that can happen now; of those that need every server, wait for one."""
        health = await asyncio.to_thread(self.stage.group.health)
        for fault in queue:
            if health.is_whole or not fault.needs_whole_group:
                queue.remove(fault)
                return fault
        await self.stage.group.until_whole()
        return queue.pop(0)

    async def _happen(self, fault: Fault) -> None:
        began, dropped, noted = time.monotonic(), self.judge.dropped, len(self.watcher.losses)
        say(f"{fault.name} ...")
        await fault.begin(self.stage)
        with self._previous_asked():
            await asyncio.sleep(fault.random.uniform(*fault.lasts))
        await fault.end()
        ended = time.monotonic()
        try:
            await until(lambda: fault.is_over(self.stage), within=RECOVERY_SECONDS)
        except TimeoutError:
            self.result.breaches.append(f"{fault.name} is not over after {RECOVERY_SECONDS} s")
            say(self.stage.logs())
        over = time.monotonic()
        await self.judge.audit()
        await asyncio.sleep(0.5)
        self.result.after_decision += [
            resumed
            for decided, _ in self.watcher.primaries
            if decided > began and (resumed := self.prober.resumed(decided)) is not None
        ]
        gaps = {kind: self.prober.longest_gap(kind, began, over) for kind in KINDS}
        happened = Happened(
            kind=fault.name,
            recovered_after=over - ended,
            gaps=gaps,
            dropped=self.judge.dropped - dropped,
            noted=len(self.watcher.losses) - noted,
        )
        self.result.happened.append(happened)
        shown = ", ".join(f"no {kind} for {gap:.1f} s" for kind, gap in gaps.items())
        say(f"    over after {over - ended:.1f} s, {shown}, {self.witness.written} operations")


def nodes_of(plan: Plan) -> dict[str, Resources]:
    """Small ones, so that clients are in each other's way."""
    return some_nodes(plan.nodes, cpu=2500, gib=10)


@asynccontextmanager
async def _background(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """These run meanwhile; one that fails ends the block with its error."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        try:
            yield
        finally:
            while not all(task.done() for task in tasks):
                # More than once: redis-py may turn one into another error, which is caught.
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks, timeout=1)


def say(text: str) -> None:
    """To whoever waits for the campaign."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)  # noqa: T201
