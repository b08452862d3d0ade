"""A real replica is told to end, or begins, while something it stands on is slow or away.

Field report 30.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import pytest

from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.model.rows import PodRow
from tests.conftest import StartServer
from tests.support.fake_api.faults import Held, Late
from tests.support.fake_api.samples import pod
from tests.support.fake_api.server import FakeApi
from tests.support.kubeconfig import kubeconfig_of
from tests.support.live import with_config
from tests.support.servers import Server, async_client
from tests.support.serving import Served, serving

pytestmark = pytest.mark.long

SAMPLE = Path(__file__).parents[2] / "deploy" / "sample" / "cluster.json"
GONE_WITHIN = 10.0


@dataclass(slots=True)
class Scene:
    """One replica that runs, and its cluster."""

    api: FakeApi
    replica: Served
    server: Server
    http: aiohttp.ClientSession

    async def bind(self, name: str) -> tuple[str, str]:
        """The `Error` that a bind of a new pod answers, and its Connection header."""
        made = self.api.store.create("pods", pod(name, namespace="default"))
        body = {
            "PodName": name,
            "PodNamespace": "default",
            "PodUID": made["metadata"]["uid"],
            "Node": "n1",
        }
        async with self.http.post(f"{self.replica.extender}/bind", json=body) as answer:
            assert answer.status == 200
            return (await answer.json())["Error"], answer.headers.get("Connection", "")

    async def status(self, path: str) -> int:
        async with self.http.get(f"{self.replica.admin}{path}") as answer:
            return answer.status

    async def becomes(self, path: str, status: int) -> None:
        while await self.status(path) != status:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.02)

    async def stages(self) -> dict[str, str]:
        """Of every pod in the ledger, by name."""
        raw: Any = async_client(self.server)
        rows = await raw.hgetall(Keys("default").key("pods"))
        await raw.aclose()
        found = [PodRow.decode(row.decode()) for row in rows.values()]
        return {row.name.partition("/")[2]: row.stage for row in found}

    def stop(self) -> float:
        """Told to end at that moment."""
        self.replica.process.send_signal(signal.SIGTERM)
        return time.monotonic()


@pytest.fixture(autouse=True)
def config(api: FakeApi) -> None:
    """Without one a replica waits, and gives up."""
    with_config(api)


@asynccontextmanager
async def beginning(
    redis_url: str, cluster: str, *flags: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A replica that is not ready yet, and the URL of its admin port."""
    command = [sys.executable, "-m", "autoscale_enforcer.cli.main", "serve", "--host=127.0.0.1"]
    command += ["--redis-url", redis_url, "--cluster", cluster, *flags]
    command += ["--extender-port=0", "--agent-port=0", "--admin-port=0"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        found = None
        async for line in process.stderr:
            if found := re.search(rb"the admin port is (\d+)", line):
                break
        assert found, "it ended without an admin port"
        yield process, f"http://127.0.0.1:{int(found[1])}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def go_on(server: Server) -> None:
    """A server that was stopped can be ended like any other."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGCONT)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def open_connection(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
    return await asyncio.open_connection(host, int(port))


@pytest.mark.parametrize(
    ("answer_within", "answer"), [("5s", ""), ("0.5s", "no answer in time: ask again")]
)
async def test_what_is_in_flight_ends_and_is_answered(
    api: FakeApi,
    start_server: StartServer,
    http: aiohttp.ClientSession,
    tmp_path: Path,
    answer_within: str,
    answer: str,
) -> None:
    server = start_server("valkey")
    flags = [f"--kubeconfig={kubeconfig_of(api.url, tmp_path)}", "--settle-after=0s"]
    flags.append(f"--answer-within={answer_within}")
    async with serving(server.url, "kubernetes", *flags, replicas=1) as (replica,):
        scene = Scene(api, replica, server, http)
        reader, idle = await open_connection(replica.extender)
        idle.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"Not Found\n")
        held = Held()
        api.always("create", "pods/binding", held)
        binding = asyncio.create_task(scene.bind("p1"))
        await held.arrived.wait()

        asked = scene.stop()

        await scene.becomes("/readyz", 503)
        assert await scene.status("/livez") == 200
        await reader.read()  # to the end: it is closed
        for url in (replica.extender, replica.agent):
            with pytest.raises(ConnectionRefusedError):
                await open_connection(url)
        if answer:
            await asyncio.wait([binding])
        held.release.set()
        assert await binding == (answer, "close")
        assert await replica.process.wait() == 0
        assert time.monotonic() - asked < GONE_WITHIN
        idle.close()

        assert await scene.stages() == {"p1": "bound"}
        assert api.store.get("pods", "default/p1")["spec"]["nodeName"] == "n1"


async def test_an_api_server_that_hangs_holds_nobody_up(
    api: FakeApi, start_server: StartServer, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    server = start_server("valkey")
    flags = ("--kubeconfig", str(kubeconfig_of(api.url, tmp_path)), "--settle-after=0s")
    async with serving(server.url, "kubernetes", *flags, replicas=1) as (replica,):
        scene = Scene(api, replica, server, http)
        for verb in ("create", "get", "patch"):
            for resource in ("pods/binding", "pods", "pods/status"):
                api.always(verb, resource, Late(60))
        binding = asyncio.create_task(scene.bind("p1"))
        await api.until("create", "pods/binding", 1)

        asked = scene.stop()

        assert (await binding)[0] != ""
        assert await replica.process.wait() == 0
        assert time.monotonic() - asked < GONE_WITHIN
        assert await scene.stages() == {"p1": "binding"}  # for the sweep of another replica


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_redis_that_hangs_or_is_gone_ends_nobodys_life(
    start_server: StartServer, http: aiohttp.ClientSession, api: FakeApi, how: signal.Signals
) -> None:
    server = start_server("valkey", tcp=True)
    async with serving(server.tcp_url, f"file:{SAMPLE}", replicas=1) as (replica,):
        scene = Scene(api, replica, server, http)
        os.kill(server.pid, how)

        await scene.becomes("/readyz", 503)
        took = []
        for _ in range(20):
            began = time.monotonic()
            assert await scene.status("/livez") == 200
            took.append(time.monotonic() - began)
        assert median(took) < 0.5  # what Redis has for an answer

        asked = scene.stop()
        assert await replica.process.wait() == 0
        assert time.monotonic() - asked < GONE_WITHIN
        go_on(server)


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("source", ["file", "kubernetes"])
async def test_a_replica_that_begins_without_redis_is_alive_and_heeds_a_stop(
    api: FakeApi,
    start_server: StartServer,
    http: aiohttp.ClientSession,
    tmp_path: Path,
    how: signal.Signals,
    source: str,
) -> None:
    """It answered no probe, and no signal, before it had reached Redis."""
    server = start_server("valkey", tcp=True)
    os.kill(server.pid, how)
    cluster, flags = f"file:{SAMPLE}", list[str]()
    if source == "kubernetes":
        cluster, flags = "kubernetes", [f"--kubeconfig={kubeconfig_of(api.url, tmp_path)}"]
    async with beginning(server.tcp_url, cluster, *flags) as (process, admin):
        async with http.get(f"{admin}/livez") as answer:
            assert answer.status == 200
        async with http.get(f"{admin}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "starting\n")

        process.send_signal(signal.SIGTERM)

        async with asyncio.timeout(GONE_WITHIN):
            assert await process.wait() == 0
    go_on(server)
