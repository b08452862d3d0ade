"""A stand-in for the kubelets of all nodes: it runs, resizes, finishes and ends pods on paper."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import aiohttp

from tests.e2e.harness.api import PODS, Api, ApiError, Object, WatchEvent

ENDED = {"Succeeded", "Failed"}
RETRY_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long each step of a pod's life takes."""

    start: timedelta = timedelta(milliseconds=50)
    """From bound to Running."""
    finish: timedelta | None = None
    """From Running to Succeeded; None runs on until somebody deletes it."""
    end: timedelta = timedelta(milliseconds=50)
    """From its deletion timestamp until it is gone."""
    resize: timedelta = timedelta(milliseconds=50)
    """From new requests until its status agrees."""


class KubeletStandIn:
    """Plays the kubelet of every node while its `async with` block lasts.

    `delays` hold for pods without an entry in `delays_of`, by name; both may be changed at any time
    and count from the pod's next event on. An API server that goes away is waited for; any other
    failure comes out of the block.
    """

    def __init__(self, api: Api, delays: Delays | None = None) -> None:
        self.delays = delays or Delays()
        self.delays_of: dict[str, Delays] = {}
        self._api = api
        self._steps: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._run(), name="kubelet stand-in")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    with contextlib.suppress(aiohttp.ClientError):
                        async for event in self._events():
                            self._take(event, tasks)
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._steps.clear()

    async def _events(self) -> AsyncIterator[WatchEvent]:
        bound = "spec.nodeName!="
        try:
            listing = await self._api.listing(PODS, fields=bound)
            for pod in listing.items:
                yield WatchEvent("ADDED", pod)
            since = listing.resource_version
            async with self._api.watch(PODS, since=since, fields=bound) as events:
                async for event in events:
                    yield event
        except ApiError as error:
            # 410: our version is too old; 429 and 5xx: an API server that is coming or going.
            if error.status not in {410, 429} and error.status < 500:
                raise

    def _take(self, event: WatchEvent, tasks: asyncio.TaskGroup) -> None:
        pod = event.object
        uid = pod["metadata"]["uid"]
        step = "" if event.type == "DELETED" else next_step(pod)
        running, task = self._steps.get(uid, ("", None))
        if step == running and task is not None and not task.done():
            return
        if task is not None:
            task.cancel()
            self._steps.pop(uid)
        if step:
            self._steps[uid] = step, tasks.create_task(self._play(step, pod))

    async def _play(self, step: str, pod: Object) -> None:
        name = pod["metadata"]["name"]
        delays = self.delays_of.get(name, self.delays)
        wait: timedelta | None = getattr(delays, step)
        if wait is None:
            return
        await asyncio.sleep(wait.total_seconds())
        try:
            await self._step(step, pod)
        except ApiError as error:
            if error.status not in {404, 409}:  # gone, or another pod under its name
                raise
        except aiohttp.ClientError:
            return  # the list after the lost watch brings the pod again

    def _step(self, step: str, pod: Object) -> Coroutine[Any, Any, None]:
        if step == "end":
            return self._end(pod)
        if step == "finish":
            return self._report(pod, ended_status(pod))
        return self._report(pod, running_status(pod))

    async def _end(self, pod: Object) -> None:
        metadata = pod["metadata"]
        if pod["status"].get("phase") not in ENDED:
            await self._report(pod, ended_status(pod))
        await self._api.delete(
            PODS,
            metadata["name"],
            namespace=metadata["namespace"],
            grace_seconds=0,
            uid=metadata["uid"],
        )

    async def _report(self, pod: Object, status: Object) -> None:
        metadata = pod["metadata"]
        await self._api.patch(
            PODS,
            metadata["name"],
            {"metadata": {"uid": metadata["uid"]}, "status": status},
            namespace=metadata["namespace"],
            subresource="status",
            strategy="strategic",
        )


def next_step(pod: Object) -> str:
    """The field of Delays that says when the kubelet does its next thing for a bound pod, or ``."""
    status = pod["status"]
    if "deletionTimestamp" in pod["metadata"]:
        return "end"
    if status.get("phase") in ENDED:
        return ""
    if status.get("phase") != "Running":
        return "start"
    if _resources(status.get("containerStatuses", [])) != _resources(pod["spec"]["containers"]):
        return "resize"
    return "finish"


def running_status(pod: Object) -> Object:
    """Running and ready, with what is asked for now."""
    started = pod["status"].get("startTime") or _now()
    state = {"running": {"startedAt": started}}
    sidecars = [
        container
        for container in pod["spec"].get("initContainers", [])
        if container.get("restartPolicy") == "Always"
    ]
    return {
        "phase": "Running",
        "startTime": started,
        "conditions": _conditions("True"),
        "containerStatuses": [_status(entry, state) for entry in pod["spec"]["containers"]],
        "initContainerStatuses": [_status(entry, state) for entry in sidecars],
    }


def ended_status(pod: Object) -> Object:
    """Succeeded, every container with code 0."""
    state = {"running": None, "terminated": {"exitCode": 0, "reason": "Completed"}}
    return {
        "phase": "Succeeded",
        "conditions": _conditions("False"),
        "containerStatuses": [_status(entry, state) for entry in pod["spec"]["containers"]],
    }


def _status(container: Object, state: Object) -> Object:
    is_running = "terminated" not in state
    resources = container.get("resources", {})
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "restartCount": 0,
        "ready": is_running,
        "started": is_running,
        "state": state,
        "resources": resources,
        "allocatedResources": resources.get("requests", {}),
    }


def _conditions(ready: str) -> list[Object]:
    return [
        {"type": kind, "status": ready, "lastTransitionTime": _now()}
        for kind in ("PodReadyToStartContainers", "ContainersReady", "Ready")
    ]


def _resources(containers: list[Object]) -> dict[str, Object]:
    return {container["name"]: container.get("resources", {}) for container in containers}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
