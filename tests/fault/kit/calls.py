"""Single calls to one replica, as a scheduler and an agent make them, and callers that keep on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from autoscale_enforcer.model.resources import Resources
from tests.fault.kit.fleet import Serving
from tests.fault.kit.stage import Stage
from tests.history.clients import NAMESPACE, UNIT, Json, plain_pod

NO_ANSWER = 0
PATIENCE = aiohttp.ClientTimeout(total=5)
"""kube-scheduler's."""
SMALL_PODS = 20


def small_pod(number: int) -> Json:
    """One of `small_pods`, which are there to be held and released."""
    return plain_pod(f"small-{number % SMALL_PODS}", Resources(10, 1 << 20))


def small_pods() -> list[Json]:
    """For the cluster to have: what it lacks would be taken for deleted."""
    return [{"kind": "Pod", **small_pod(number)} for number in range(SMALL_PODS)]


@dataclass(frozen=True, slots=True)
class Said:
    """What came back; status 0: the connection broke, or could not be made."""

    status: int
    body: Json
    text: str = ""

    @property
    def is_success(self) -> bool:
        """It was done, in whichever verb's words."""
        return self.status == 200 and not self.body.get("Error") and self.body.get(
            "Code", "Success"
        ) == "Success"  # fmt: skip


async def post(stage: Stage, url: str, body: Json) -> Said:
    """One call; TimeoutError where the caller's patience ends first."""
    try:
        async with stage.http.post(url, json=body, timeout=PATIENCE) as answer:
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return Said(answer.status, await answer.json() if is_json else {}, text)
    except aiohttp.ClientError as error:
        return Said(NO_ANSWER, {}, repr(error))


async def reserve(stage: Stage, at: Serving, pod: Json, node: str) -> Said:
    """Hold room for the pod."""
    return await post(stage, f"{at.extender}/reserve", {"Pod": pod, "NodeName": node})


async def unreserve(stage: Stage, at: Serving, pod: Json, node: str) -> Said:
    """Release it."""
    return await post(stage, f"{at.extender}/unreserve", {"Pod": pod, "NodeName": node})


async def bind(stage: Stage, at: Serving, pod: Json, node: str) -> Said:
    """Bind it."""
    named = pod["metadata"]
    body = {"PodName": named["name"], "PodNamespace": named["namespace"], "PodUID": named["uid"]}
    return await post(stage, f"{at.extender}/bind", {**body, "Node": node})


async def filter_nodes(stage: Stage, at: Serving, pod: Json, *nodes: str) -> Said:
    """Ask where it fits."""
    return await post(stage, f"{at.extender}/filter", {"Pod": pod, "NodeNames": list(nodes)})


async def ask(
    stage: Stage, at: Serving, vm: str, wanted: Resources, *, last: Resources | None = None
) -> Said:
    """Ask for a permit."""
    body: dict[str, Any] = {
        "protoVersion": 7,
        "pod": {"namespace": NAMESPACE, "name": vm},
        "computeUnit": _amounts(UNIT),
        "resources": _amounts(wanted),
        "lastPermit": _amounts(last) if last else None,
        "metrics": None,
    }
    return await post(stage, at.agent, body)


def _amounts(amount: Resources) -> Json:
    return {"vCPUs": f"{amount.cpu}m", "mem": str(amount.mem)}


@dataclass(slots=True)
class Caller:
    """Holds and releases room for a pod of its own at one replica, again and again."""

    stage: Stage
    at: Serving
    node: str
    pod: Json
    answers: list[Said] = field(default_factory=list)

    async def run(self) -> None:
        """Until it is cancelled."""
        for call in itertools.cycle((reserve, unreserve)):
            self.answers.append(await call(self.stage, self.at, self.pod, self.node))
            await asyncio.sleep(0.01)


@asynccontextmanager
async def calling(stage: Stage, node: str) -> AsyncIterator[dict[str, Caller]]:
    """A caller for each replica while the block lasts, by the replica's name."""
    callers = {
        each.name: Caller(stage, each, node, small_pod(number))
        for number, each in enumerate(stage.fleet)
    }
    tasks = [asyncio.create_task(each.run()) for each in callers.values()]
    try:
        yield callers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
