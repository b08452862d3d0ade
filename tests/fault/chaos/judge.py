"""Holds what clients were told against the books and the cluster, meanwhile and at the end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscale_enforcer.ledger.verify import Books
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.objects.decode import convert
from autoscale_enforcer.objects.pods import read_pod
from autoscale_enforcer.objects.shapes import PodObject
from tests.fault.chaos.known import Difference, Witness
from tests.fault.chaos.result import Result
from tests.fault.chaos.watch import Watcher, books_of
from tests.fault.kit.fleet import Serving
from tests.fault.kit.stage import Stage, until
from tests.history.record import Op

QUIET_SECONDS = 60
"""In which the books must be what the cluster says once nobody asks any more."""


@dataclass(slots=True)
class Judge:
    """Writes what must not be into the result."""

    stage: Stage
    witness: Witness
    watcher: Watcher
    capacities: Mapping[str, Resources]
    result: Result
    dropped: int = 0
    """Acknowledged grants that Redis had no longer."""
    _wiped_at: int = 0
    """When the books were last seen to be gone, in ns."""
    _is_wiped: bool = False
    """They still are."""
    _auditing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def note_epoch(self, since: int, is_wiped: bool) -> None:
        """Have it in the history that the books have begun another life since then."""
        # Books that follow on none were built from the cluster, so nothing else is in them.
        call = self.witness.happens(Op.EPOCH, is_wiped=is_wiped or self._is_wiped)
        call.operation.invoked = since
        call.done()
        self._is_wiped = is_wiped
        if is_wiped:
            self._wiped_at = time.monotonic_ns()

    async def audit_often(self) -> None:
        """Compare the books with what was told, and real use with capacities; for ever."""
        while True:
            await asyncio.sleep(2)
            await self.audit()
            await self._add_up()

    async def audit(self) -> None:
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
        elif difference.told_at < max(self._wiped_at, noted):
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
        for name, capacity in self.capacities.items():
            for resource in ("cpu", "mem"):
                if used[name, resource] > getattr(capacity, resource):
                    self.result.over_commits.append(
                        f"{name} really uses {used[name, resource]} {resource} of {capacity}"
                    )

    async def judge(self) -> None:
        """At the end, when nobody asks any more."""
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
        await self.audit()
        await self.watcher.look()
        self.result.over_commits += self.watcher.problems
        for serving in self.stage.fleet:
            self.result.breaches += await self._verified(serving)

    async def _verified(self, serving: Serving) -> list[str]:
        """What a replica finds wrong with the books."""
        async with self.stage.http.get(f"{serving.admin}/api/v1/verify") as answer:
            if answer.status != 200:
                log = serving.process.log(2000)
                return [f"verify at {serving.name}: {answer.status}, {log}"]
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
