"""A leader in a large, busy cluster: how late the ledger is, and how long callers wait.

Everything is a process of its own, the fake API server too. A machine that runs other things makes
answers late that are not slow, so an answer is judged by the lower of two figures, neither of which
a machine of its own would exceed: what it took without the time in which the replica was ready to
run and the kernel ran others, and the processor time that all who had a part in it used meanwhile.
The lag is judged as it is.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import redis.asyncio

from autoscale_enforcer.cluster.kubernetes.config_map import KEYS as CONFIG_KEYS
from autoscale_enforcer.cluster.kubernetes.config_map import NAME as CONFIG_NAME
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.model.rows import NodeRow, PodRow
from tests.support import serving as served
from tests.support.fake_api.process import fake_api_process
from tests.support.fake_api.samples import Json, pod
from tests.support.kubeconfig import kubeconfig_of
from tests.support.servers import Server
from tests.support.serving import Served, serving

pytestmark = pytest.mark.scale

KEYS = Keys("default")
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
MERGE = {"Content-Type": "application/merge-patch+json"}
STORM_SECONDS = 60
EVENTS_PER_SECOND = 500


@dataclass(frozen=True, slots=True)
class Part:
    """A process that has a part in each answer."""

    pid: int

    def used(self) -> float:
        """Seconds of processor time; Linux names a process's clock by its id."""
        return time.clock_gettime(~self.pid << 3 | 2)

    def starved(self) -> float:
        """Seconds in which it was ready to run and others ran."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9


@dataclass(slots=True)
class Waits:
    """Seconds that callers waited, as they are judged and as they were."""

    seconds: list[float] = field(default_factory=list)
    raw: list[float] = field(default_factory=list)
    starved: int = 0
    """Calls that ended in an error because the machine let nobody answer."""

    def at(self, share: float) -> float:
        return sorted(self.seconds)[int(len(self.seconds) * share)]

    @property
    def worst(self) -> float:
        return max(self.seconds)

    def figures(self) -> str:
        """Median, 99th percentile and worst in ms; the last also as it was."""
        shown = (self.at(0.5), self.at(0.99), self.worst, max(self.raw))
        times = "/".join(f"{1000 * each:.1f}" for each in shown)
        return f"{len(self.seconds)} calls {times}" + (
            f", {self.starved} starved" * bool(self.starved)
        )


@dataclass(slots=True)
class Scene:
    """One replica that leads, over a fake API server of that many nodes."""

    nodes: int
    api: str
    replica: Served
    http: aiohttp.ClientSession
    raw: Any
    parts: tuple[Part, Part, Part]
    """Replica, Redis, and this process."""

    async def calls(self, until: Callable[[], bool]) -> Waits:
        """Filter, prioritize, reserve, unreserve and readiness, by three callers."""
        waits, count = Waits(), itertools.count()
        names = [f"node-{number:05}" for number in range(min(self.nodes, 1000))]

        async def call() -> None:
            number = next(count)
            uid = f"new-{number}"
            asked = pod(uid, uid=uid, namespace="default", resourceVersion="1")
            bodies: list[tuple[str, Json]] = [
                ("filter", {"Pod": asked, "NodeNames": names}),
                ("prioritize", {"Pod": asked, "NodeNames": names}),
                ("reserve", {"Pod": asked, "NodeName": names[number % len(names)]}),
                ("unreserve", {"Pod": asked, "NodeName": names[number % len(names)]}),
            ]
            for verb, body in bodies:
                url = f"{self.replica.extender}/{verb}"
                await self._time(self.http.post(url, json=body), waits)
            url = f"{self.replica.admin}/readyz"
            await self._time(self.http.get(url), waits)

        async def caller() -> None:
            while not until():
                await call()
                await asyncio.sleep(0.05)

        await asyncio.gather(*(caller() for _ in range(3)))
        return waits

    async def _time(self, request: Any, waits: Waits) -> None:
        began, used, starved = time.perf_counter(), self._used(), self._starved()
        async with request as answer:
            body = await answer.read()
        took = time.perf_counter() - began
        used, starved = (
            self._used() - used,
            [b - a for a, b in zip(starved, self._starved(), strict=True)],
        )
        if answer.status != 200 or b'"Error":"' in body.replace(b'"Error":""', b""):
            assert sum(starved) > took / 2, body
            waits.starved += 1
            return
        waits.raw.append(took)
        waits.seconds.append(min(took - starved[0], used))

    def _used(self) -> float:
        return sum(part.used() for part in self.parts)

    def _starved(self) -> list[float]:
        return [part.starved() for part in self.parts]

    async def lags(self, until: Callable[[], bool]) -> list[float]:
        """Seconds from the API server's answer to a change until the ledger has it."""
        found = []
        uid = await self.raw.hget(KEYS.key("names"), "default/pod-000000")
        while not until():
            body = {"metadata": {"annotations": {"probe": str(time.time())}}}
            path = f"{self.api}{PODS}/pod-000000"
            async with self.http.patch(path, data=json.dumps(body), headers=MERGE) as answer:
                version = int((await answer.json())["metadata"]["resourceVersion"])
            began = time.monotonic()

            async def is_booked(uid: bytes = uid, version: int = version) -> bool:
                row = PodRow.decode((await self.raw.hget(KEYS.key("pods"), uid)).decode())
                return int(row.rv) >= version

            await until_so(is_booked)
            found.append(time.monotonic() - began)
        return sorted(found)

    async def version(self) -> int:
        """The API server's: one more with each change."""
        async with self.http.get(f"{self.api}/api/v1/nodes?limit=1") as answer:
            return int((await answer.json())["metadata"]["resourceVersion"])


async def until_so(is_so: Callable[[], Awaitable[bool]]) -> None:
    while not await is_so():  # noqa: ASYNC110 - what is waited for is in Redis
        await asyncio.sleep(0.005)


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


@asynccontextmanager
async def scene(
    folder: Path, *, nodes: int, pods: int, events_per_second: float = 0
) -> AsyncIterator[Scene]:
    made = fake_api_process(nodes=nodes, pods=pods, events_per_second=events_per_second)
    with made as url, Server("valkey") as server:
        flags = (
            "--kubeconfig",
            str(kubeconfig_of(url, folder)),
            "--settle-after=0s",
            "--bind-budget=0s",
        )
        raw = redis.asyncio.Redis(unix_socket_path=str(server.socket))
        async with aiohttp.ClientSession() as http:
            await _put_config(http, url, "s1", create=True)
            async with serving(server.url, "kubernetes", *flags, replicas=1) as (replica,):
                parts = (Part(replica.process.pid), Part(server.pid), Part(os.getpid()))
                yield Scene(nodes, url, replica, http, raw, parts)
        await raw.aclose()


async def _put_config(
    http: aiohttp.ClientSession, url: str, scheduler: str, *, create: bool = False
) -> str:
    """Give the cluster a config; its version."""
    config = json.dumps({"scoring": {}, "schedulerName": scheduler})
    body: Json = {"data": {CONFIG_KEYS[0]: config}}
    body["metadata"] = {"name": CONFIG_NAME, "namespace": "kube-system"}
    path = f"{url}{CONFIG_MAPS}" + ("" if create else f"/{CONFIG_NAME}")
    send = http.post(path, json=body) if create else http.patch(path, json=body, headers=MERGE)
    async with send as answer:
        assert answer.status in (200, 201), await answer.text()
        return str((await answer.json())["metadata"]["resourceVersion"])


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of 150,000 pods takes its time."""
    monkeypatch.setattr(served, "READY_SECONDS", 200)


@pytest.mark.timeout(200)
async def test_500_pod_events_a_second_are_booked_within_a_second_and_hold_nobody_up(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    async with scene(tmp_path, nodes=100, pods=3000) as quiet_scene:
        await quiet_scene.calls(after(3))  # connections, and the first of everything
        quiet = await quiet_scene.calls(after(20))
    storm = scene(tmp_path, nodes=100, pods=3000, events_per_second=EVENTS_PER_SECOND)
    async with storm as busy_scene:
        await busy_scene.calls(after(3))
        began, version = time.monotonic(), await busy_scene.version()
        is_over = after(STORM_SECONDS)
        busy, lags = await asyncio.gather(busy_scene.calls(is_over), busy_scene.lags(is_over))
        rate = (await busy_scene.version() - version) / (time.monotonic() - began)

    lag = lags[int(len(lags) * 0.99)]
    print(  # noqa: T201 - the figures, for docs
        f"\n{rate:.0f} events/s: lag p50 {lags[len(lags) // 2]:.3f} p99 {lag:.3f} s of {len(lags)};"
        f" quiet {quiet.figures()}; busy {busy.figures()} ms;"
        f" p99 times {busy.at(0.99) / quiet.at(0.99):.2f}"
    )
    record_property("p99_ratio", busy.at(0.99) / quiet.at(0.99))
    assert rate >= 0.95 * EVENTS_PER_SECOND
    assert lag < 1
    assert busy.at(0.99) < 2 * quiet.at(0.99)


@pytest.mark.timeout(330)
async def test_a_relist_of_5000_nodes_and_150000_pods_makes_no_caller_wait(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """A changed config is booked on every node by a compare of everything: the longest relist."""
    nodes, pods = 5000, 150_000
    async with scene(tmp_path, nodes=nodes, pods=pods) as large:
        quiet = await large.calls(after(10))
        last = await large.raw.hget(KEYS.key("names"), f"default/pod-{pods - 1:06}")
        false = await _falsify(large, last)
        config = await _put_config(large.http, large.api, "s2")
        ends: asyncio.Future[None] = asyncio.ensure_future(_compared(large, last, false, config))
        began = time.monotonic()
        try:
            busy = await large.calls(ends.done)
            await ends
        finally:
            ends.cancel()
        took = time.monotonic() - began

    print(  # noqa: T201 - the figures, for docs
        f"\nrelist of {took:.0f} s: quiet {quiet.figures()}; busy {busy.figures()} ms;"
        f" p99 times {busy.at(0.99) / quiet.at(0.99):.2f}"
    )
    record_property("worst_seconds", busy.worst)
    assert busy.worst < 0.25


async def _falsify(large: Scene, uid: bytes) -> str:
    """The pod that a list has last is told from what the cluster says, which a compare mends."""
    row = PodRow.decode((await large.raw.hget(KEYS.key("pods"), uid)).decode())
    true, row.rv = row.rv, "1"
    await large.raw.hset(KEYS.key("pods"), uid, row.encode())
    return true


async def _compared(large: Scene, uid: bytes, version: str, config: str) -> None:
    async def is_done() -> bool:
        text = await large.raw.hget(KEYS.key("nodes"), f"node-{large.nodes - 1:05}")
        row = await large.raw.hget(KEYS.key("pods"), uid)
        is_mended = PodRow.decode(row.decode()).rv == version
        return is_mended and NodeRow.decode(text.decode()).config == config

    while not await is_done():  # noqa: ASYNC110 - what is waited for is in Redis
        await asyncio.sleep(0.1)
