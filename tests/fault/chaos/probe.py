"""Whether the service as a whole grants: small calls in a steady beat, at each replica in turn.

The node that is asked for has a VM, so a grant there also waits until a loss has been compared.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from dataclasses import dataclass, field

import aiohttp

from tests.fault.kit.calls import small_pod
from tests.fault.kit.stage import Stage
from tests.history.clients import NAMESPACE, Json

BEAT = 0.1
PATIENCE = 1.0
KINDS = ("reserve", "permit")


@dataclass(slots=True)
class Prober:
    """`good[kind]` has the time of each grant, in s of the monotonic clock."""

    stage: Stage
    node: str
    vm: str
    good: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    calls: int = 0
    _held: set[str] = field(default_factory=set)
    _cpus: object = None
    """The permit told last."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            for number in itertools.count():
                replicas = list(self.stage.fleet)
                serving = replicas[number % len(replicas)]
                for work in (
                    self._reserve(serving.extender, number),
                    self._permit(serving.agent, number),
                ):
                    task = asyncio.ensure_future(work)
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                await asyncio.sleep(BEAT)
        finally:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def longest_gap(self, kind: str, begin: float, end: float) -> float:
        """Seconds between two grants at most, of which the later came after `begin` and the earlier
        before `end`, or to `end` where none came any more; the beat itself is taken off.
        """
        times = [at for at in self.good[kind] if at < end] + [
            next((at for at in self.good[kind] if at >= end), end)
        ]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times) if later > begin]
        return max(0.0, max(gaps, default=0.0) - BEAT)

    def resumed(self, since: float) -> float | None:
        """Seconds from then until both kinds were granted; None where one has not been since."""
        first = [next((at for at in self.good[kind] if at > since), None) for kind in KINDS]
        granted = [at for at in first if at is not None]
        return max(granted) - since if len(granted) == len(KINDS) else None

    async def _reserve(self, extender: str, number: int) -> None:
        pod = small_pod(number)
        name = pod["metadata"]["name"]
        body: Json = {"Pod": pod, "NodeName": self.node}
        was_held = name in self._held
        if _is_success(await self._post(f"{extender}/reserve", body)):
            if not was_held:  # to hold it longer is no grant
                self.good["reserve"].append(time.monotonic())
            self._held.add(name)
        if _is_success(await self._post(f"{extender}/unreserve", body)):
            self._held.discard(name)

    async def _permit(self, agent: str, number: int) -> None:
        cpus = 1 + number % 2
        body = {
            "protoVersion": 7,
            "pod": {"namespace": NAMESPACE, "name": self.vm},
            "computeUnit": {"vCPUs": "250m", "mem": "1Gi"},
            "resources": {"vCPUs": cpus, "mem": f"{cpus}Gi"},
            "lastPermit": None,
            "metrics": None,
        }
        answer = await self._post(agent, body)
        if answer:
            before, self._cpus = self._cpus, json.loads(answer)["permit"]["vCPUs"]
            if before == 1 and self._cpus == 2:  # to shrink or to stay is no grant
                self.good["permit"].append(time.monotonic())

    async def _post(self, url: str, body: Json) -> bytes | None:
        self.calls += 1
        limit = aiohttp.ClientTimeout(total=PATIENCE)
        try:
            async with self.stage.http.post(url, json=body, timeout=limit) as answer:
                return await answer.read() if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None


def _is_success(answer: bytes | None) -> bool:
    return answer is not None and json.loads(answer)["Code"] == "Success"
