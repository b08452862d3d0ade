"""A leader in a large, busy cluster: how late the ledger is, and how long callers wait.

Everything is a process of its own, the fake API server too. A machine that runs other things makes
answers late that are not slow: so a wait is judged without the time in which the one of those with
a part in it that was kept from running longest was ready to run, and the kernel ran others. Of
three rounds the best counts: what is slow is slow in each of them, a noise passes.
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
ROUNDS = 3
ROUND_SECONDS = 20
"""A storm of three rounds lasts a minute."""
EVENTS_PER_SECOND = 500
LONGEST_LAG = 1.0
LONGEST_WAIT = 0.25


@dataclass(frozen=True, slots=True)
class Part:
    """A process that has a part in each answer."""

    pid: int

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
    server: Part
    """The API server: it has a part in the lag."""

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
        began, starved = time.perf_counter(), self._starved()
        async with request as answer:
            body = await answer.read()
        took = time.perf_counter() - began
        starved = [b - a for a, b in zip(starved, self._starved(), strict=True)]
        if answer.status != 200 or b'"Error":"' in body.replace(b'"Error":""', b""):
            assert sum(starved) > took / 2, body
            waits.starved += 1
            return
        waits.raw.append(took)
        waits.seconds.append(took - max(starved))

    def _starved(self) -> list[float]:
        return [part.starved() for part in self.parts]

    async def lags(self, until: Callable[[], bool]) -> list[float]:
        """Seconds from the API server's answer to a change until the ledger has it, sorted."""
        found = []
        uid = await self.raw.hget(KEYS.key("names"), "default/pod-000000")
        while not until():
            body = {"metadata": {"annotations": {"probe": str(time.time())}}}
            path = f"{self.api}{PODS}/pod-000000"
            async with self.http.patch(path, data=json.dumps(body), headers=MERGE) as answer:
                version = int((await answer.json())["metadata"]["resourceVersion"])
            began, starved = time.monotonic(), [*self._starved(), self.server.starved()]

            async def is_booked(uid: bytes = uid, version: int = version) -> bool:
                row = PodRow.decode((await self.raw.hget(KEYS.key("pods"), uid)).decode())
                return int(row.rv) >= version

            await until_so(is_booked)
            took, now = time.monotonic() - began, [*self._starved(), self.server.starved()]
            found.append(took - max(b - a for a, b in zip(starved, now, strict=True)))
            await asyncio.sleep(0.02)
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
    with made as (url, pid), Server("valkey") as server:
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
                yield Scene(nodes, url, replica, http, raw, parts, Part(pid))
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
    monkeypatch.setattr(served, "READY_SECONDS", 300)


@pytest.mark.timeout(200)
async def test_500_pod_events_a_second_are_booked_within_a_second_and_hold_nobody_up(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    async with scene(tmp_path, nodes=100, pods=3000) as quiet_scene:
        await quiet_scene.calls(after(3))  # connections, and the first of everything
        quiet = await quiet_scene.calls(after(20))
    storm = scene(tmp_path, nodes=100, pods=3000, events_per_second=EVENTS_PER_SECOND)
    rounds: list[Round] = []
    async with storm as busy_scene:
        await busy_scene.calls(after(3))
        began, version = time.monotonic(), await busy_scene.version()
        starved = busy_scene.server.starved()
        for _ in range(ROUNDS):
            rounds.append(await _round(busy_scene, quiet))
            print(rounds[-1].figures())  # noqa: T201 - for docs
        ran = time.monotonic() - began - (busy_scene.server.starved() - starved)
        rate = (await busy_scene.version() - version) / ran

    print(f"quiet {quiet.figures()} ms; {rate:.0f} events/s")  # noqa: T201 - for docs
    record_property("p99_ratio", min(each.times_slower for each in rounds))
    assert rate >= 0.95 * EVENTS_PER_SECOND
    assert min(each.lag for each in rounds) < LONGEST_LAG
    assert min(each.times_slower for each in rounds) < 2
    assert min(each.busy.at(0.99) for each in rounds) < LONGEST_WAIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A part of a storm."""

    busy: Waits
    lag: float
    """99th percentile, in seconds."""
    ran: float
    """Share of the time in which the replica ran whenever it was ready to."""
    quiet: Waits

    @property
    def times_slower(self) -> float:
        """Of the 99th percentiles. What a machine keeps from the replica is not its own."""
        return self.busy.at(0.99) / self.quiet.at(0.99) * self.ran

    def figures(self) -> str:
        return (
            f"busy {self.busy.figures()} ms; lag p99 {self.lag:.3f} s;"
            f" p99 times {self.times_slower:.2f} with {self.ran:.0%} of the machine"
        )


async def _round(storm: Scene, quiet: Waits) -> Round:
    is_over, replica = after(ROUND_SECONDS), storm.parts[0]
    began, starved = time.monotonic(), replica.starved()
    busy, lags = await asyncio.gather(storm.calls(is_over), storm.lags(is_over))
    ran = 1 - (replica.starved() - starved) / (time.monotonic() - began)
    return Round(busy=busy, lag=lags[int(len(lags) * 0.99)], ran=ran, quiet=quiet)


@pytest.mark.timeout(600)
async def test_a_relist_of_5000_nodes_and_150000_pods_makes_no_caller_wait(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """A changed config is booked on every node by a compare of everything: the longest relist.

    Facts go on being booked while it lasts.
    """
    nodes, pods = 5000, 150_000
    rounds: list[tuple[float, float]] = []
    async with scene(tmp_path, nodes=nodes, pods=pods) as large:
        quiet = await large.calls(after(10))
        last = await large.raw.hget(KEYS.key("names"), f"default/pod-{pods - 1:06}")
        for number in range(ROUNDS):
            took, busy, lags = await _relist(large, last, f"s{number + 2}")
            lag = lags[int(len(lags) * 0.99)]
            rounds.append((busy.worst, lag))
            print(  # noqa: T201 - the figures, for docs
                f"\nrelist of {took:.0f} s: quiet {quiet.figures()}; busy {busy.figures()} ms;"
                f" p99 times {busy.at(0.99) / quiet.at(0.99):.2f};"
                f" lag p99 {lag:.3f} s of {len(lags)}"
            )
            if busy.worst < LONGEST_WAIT and lag < LONGEST_LAG:
                break

    worst, lag = (min(measure) for measure in zip(*rounds, strict=True))
    record_property("worst_seconds", worst)
    assert worst < LONGEST_WAIT
    assert lag < LONGEST_LAG


async def _relist(large: Scene, last: bytes, scheduler: str) -> tuple[float, Waits, list[float]]:
    """Seconds that a compare takes, and what callers and facts wait meanwhile."""
    false = await _falsify(large, last)
    config = await _put_config(large.http, large.api, scheduler)
    ends: asyncio.Future[None] = asyncio.ensure_future(_compared(large, last, false, config))
    began = time.monotonic()
    try:
        busy, lags = await asyncio.gather(large.calls(ends.done), large.lags(ends.done))
        await ends
    finally:
        ends.cancel()
    return time.monotonic() - began, busy, lags


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
