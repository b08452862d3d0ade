"""One campaign: a well stage, clients at work, one fault after another, and a judgement."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoscale_enforcer.ledger.verify import Books
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.objects.decode import convert
from autoscale_enforcer.objects.pods import read_pod
from autoscale_enforcer.objects.shapes import PodObject
from tests.fault.chaos.known import Difference, Witness
from tests.fault.chaos.probe import KINDS, Prober
from tests.fault.chaos.watch import Watcher, books_of
from tests.fault.kit.calls import small_pods
from tests.fault.kit.faults import Fault, kinds
from tests.fault.kit.fleet import Serving
from tests.fault.kit.stage import Stage, stage, until
from tests.history.clients import Json
from tests.history.scene import some_nodes
from tests.history.workload import ApiCluster, Targets, cluster_objects, vm_name
from tests.history.workload import run as run_clients

HOLD_SECONDS = 30
RECOVERY_SECONDS = 90
"""In which a fault must be over once it has ended."""
QUIET_SECONDS = 60
"""In which the books must be what the cluster says once nobody asks any more."""
PROBED = "probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long, how many, and by which seed."""

    seed: int
    minutes: float
    folder: Path
    """For the history."""
    clients: int = 24
    nodes: int = 8
    only: str = ""
    """Kinds of fault whose name has this in it; empty: all."""


@dataclass(slots=True)
class Happened:
    """One fault, and what it did to callers."""

    kind: str
    recovered_after: float
    """Seconds after its end."""
    gaps: dict[str, float]
    """Longest time without a grant, by what was granted."""
    dropped: int = 0
    """Acknowledged grants that Redis no longer had."""
    noted: int = 0
    """How often a replica has noted, by replication offsets, that this is or may be so."""


@dataclass(slots=True)
class Result:
    """All that a campaign has found."""

    plan: Plan
    happened: list[Happened] = field(default_factory=list)
    operations: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    over_commits: list[str] = field(default_factory=list)
    breaches: list[str] = field(default_factory=list)
    """Whatever else must not be: verify, drift, a fault that did not end."""
    after_decision: list[float] = field(default_factory=list)
    """Seconds from the Sentinels' decision to the next grant."""

    @property
    def is_good(self) -> bool:
        """Nothing of what must not be."""
        return not (self.lost or self.doubled or self.over_commits or self.breaches)


async def run(plan: Plan) -> Result:
    """The whole campaign; what it finds is in the result, and nothing is raised for it."""
    result = Result(plan)
    capacities = some_nodes(plan.nodes)
    objects = [
        *cluster_objects({**capacities, PROBED: Resources(8000, 32 << 30)}, clients=0),
        *(
            each
            for each in cluster_objects(capacities, clients=plan.clients)
            if each["kind"] != "Node"
        ),
        _probed_vm(plan.clients),
        *small_pods(),
    ]
    path = plan.folder / f"history-{plan.seed}.jsonl"
    async with stage(objects, "--durability=replica") as made:
        watcher = Watcher(made.group)
        prober = Prober(made, PROBED, vm_name(plan.clients))
        with Witness(path, hold_seconds=HOLD_SECONDS, durable=True) as witness:
            campaign = _Campaign(plan, made, witness, watcher, prober, result)
            async with _background(watcher.run(), prober.run(), campaign.audit_often()):
                await campaign.run(capacities)
            result.operations = witness.written + prober.calls
    return result


@dataclass(slots=True)
class _Campaign:
    plan: Plan
    stage: Stage
    witness: Witness
    watcher: Watcher
    prober: Prober
    result: Result
    dropped: int = 0
    wiped_at: int = 0
    """When the books were last taken away on purpose, in ns."""
    _is_over: bool = False
    _auditing: asyncio.Lock = field(default_factory=asyncio.Lock)

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
        await self._judge()

    def _targets(self, capacities: dict[str, Resources]) -> Targets:
        fleet = list(self.stage.fleet)
        return Targets(
            extenders=[each.extender for each in fleet],
            agents=[each.agent.rstrip("/") for each in fleet],
            admins=[each.admin for each in fleet],
            nodes=capacities,
            cluster=ApiCluster(self.stage.cluster.url, self.stage.http),
            holders=[],
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
        began, dropped, noted = time.monotonic(), self.dropped, len(self.watcher.losses)
        say(f"{fault.name} ...")
        await fault.begin(self.stage)
        if fault.loses_books:
            self.wiped_at = time.monotonic_ns()
        await asyncio.sleep(fault.random.uniform(*fault.lasts))
        await fault.end()
        ended = time.monotonic()
        try:
            await until(lambda: fault.is_over(self.stage), within=RECOVERY_SECONDS)
        except TimeoutError:
            self.result.breaches.append(f"{fault.name} is not over after {RECOVERY_SECONDS} s")
            say(self.stage.logs())
        over = time.monotonic()
        await self._audit()
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
            dropped=self.dropped - dropped,
            noted=len(self.watcher.losses) - noted,
        )
        self.result.happened.append(happened)
        shown = ", ".join(f"no {kind} for {gap:.1f} s" for kind, gap in gaps.items())
        say(f"    over after {over - ended:.1f} s, {shown}, {self.witness.written} operations")

    # Judging

    async def audit_often(self) -> None:
        """Compare the books with what was told, and real use with capacities; for ever."""
        while True:
            await asyncio.sleep(2)
            await self._audit()
            await self._add_up()

    async def _audit(self) -> None:
        async with self._auditing:
            marks = self.witness.marks()
            books = await books_of(self.stage.group)
            if books is None or books.meta.get("state") != "settled":
                return  # what is missing now may come back with the compare
            await self.watcher.look()
            for each in self.witness.differences(books, marks):
                self._sort(each)

    def _sort(self, difference: Difference) -> None:
        """Lost, unless Redis was made to forget it, or is known to have by its offsets."""
        noted = max((at for at, _ in self.watcher.losses), default=0)
        text = f"{difference.uid}: {difference.text}"
        if difference.kind == "doubled":
            self.result.doubled.append(text)
        elif difference.told_at < max(self.wiped_at, noted):
            self.dropped += 1
        else:
            self.result.lost.append(text)

    async def _add_up(self) -> None:
        """What is really used on each node: bound pods in the cluster, and permits as told."""
        used: Counter[tuple[str, str]] = Counter()
        pods = await self.stage.cluster.pods()
        self.witness.forget_gone({pod["metadata"]["uid"] for pod in pods})
        for pod in pods:
            known = self.witness.pods.get(pod["metadata"]["uid"])
            node = pod["spec"].get("nodeName")
            is_vm = pod["metadata"]["uid"] in self.witness.vms
            if node and not is_vm and not (known and known.is_gone):
                fact = read_pod(convert(pod, PodObject))
                used[node, "cpu"] += fact.requests.cpu
                used[node, "mem"] += fact.requests.mem
        for vm in self.witness.vms.values():
            used[vm.node, "cpu"] += vm.used.cpu
            used[vm.node, "mem"] += vm.used.mem
        for name, capacity in some_nodes(self.plan.nodes).items():
            for resource in ("cpu", "mem"):
                if used[name, resource] > getattr(capacity, resource):
                    self.result.over_commits.append(
                        f"{name} really uses {used[name, resource]} {resource} of {capacity}"
                    )

    async def _judge(self) -> None:
        """At the end, when nobody asks any more."""
        say("quiet ...")
        await self.stage.group.until_whole()
        drift = ["not looked at"]

        async def is_still() -> bool:
            nonlocal drift
            books = await books_of(self.stage.group)
            drift = await self._drift(books) if books else ["no books"]
            return not drift and await self.stage.is_well()

        try:
            await until(is_still, within=QUIET_SECONDS)
        except TimeoutError:
            self.result.breaches += [f"drift: {each}" for each in drift]
        await self._audit()
        await self.watcher.look()
        self.result.over_commits += self.watcher.problems
        for serving in self.stage.fleet:
            self.result.breaches += await self._verified(serving)

    async def _verified(self, serving: Serving) -> list[str]:
        """What a replica finds wrong with the books."""
        async with self.stage.http.get(f"{serving.admin}/api/v1/verify") as answer:
            if answer.status != 200:
                say(serving.process.log(4000))
                return [f"verify at {serving.name}: {answer.status} {await answer.text()}"]
            return [
                f"verify at {serving.name}: {each}" for each in (await answer.json())["breaches"]
            ]

    async def _drift(self, books: Books) -> list[str]:
        """Where the books' bound pods are not those of the cluster."""
        in_cluster = {
            pod["metadata"]["uid"]: pod["spec"]["nodeName"]
            for pod in await self.stage.cluster.pods()
            if pod["spec"].get("nodeName")
        }
        in_books = {str(uid): row.node for uid, row in books.pods.items() if row.stage == "bound"}
        return [
            f"{uid}: in the cluster {in_cluster.get(uid)}, in the books {in_books.get(uid)}"
            for uid in in_cluster.keys() | in_books.keys()
            if in_cluster.get(uid) != in_books.get(uid)
        ]


def _is_pod(found: Json) -> bool:
    return bool(found["kind"] == "Pod")


def _probed_vm(number: int) -> Json:
    """One more VM, on the node of the probes."""
    (vm,) = (
        each
        for each in cluster_objects({PROBED: Resources()}, clients=number + 1)
        if each["metadata"]["name"] == vm_name(number)
    )
    return vm


@asynccontextmanager
async def _background(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """These run meanwhile; one that fails ends the block with its error."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


def say(text: str) -> None:
    """To whoever waits for the campaign."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)  # noqa: T201
