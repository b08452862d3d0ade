"""Replicas as real processes of `autoscale-enforcer serve`, over a server of the test's own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

HOST = "127.0.0.1"
READY_SECONDS = 100
"""Python starts slowly where others keep the machine busy."""


@dataclass(frozen=True, slots=True)
class Served:
    """One replica that answers."""

    name: str
    process: asyncio.subprocess.Process
    extender: str
    """URL of its own, without a verb."""
    agent: str
    admin: str


@asynccontextmanager
async def serving(
    redis_url: str, cluster: str, *flags: str, replicas: int = 3, shared_port: int = 0
) -> AsyncIterator[list[Served]]:
    """So many replicas on ports of their own; all of them are gone afterwards.

    `cluster` is a source, such as `file:PATH`. With `shared_port` they also share that one for
    kube-scheduler.
    """
    if shared_port:
        flags = (*flags, f"--extender-port={shared_port}", "--reuse-port", "--own-ports=0,0,0")
    async with AsyncExitStack() as stack:
        processes = []
        for number in range(1, replicas + 1):
            command = _command(redis_url, cluster, f"r{number}", flags)
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "AE_HOST": HOST}
            )
            stack.push_async_callback(_stop, process)
            processes.append(process)
        async with asyncio.timeout(READY_SECONDS):
            ready = [await _ready(process) for process in processes]
        yield ready


def _command(redis_url: str, cluster: str, name: str, flags: Sequence[str]) -> list[str]:
    ports = [f"--{door}-port=0" for door in ("extender", "agent", "admin")]
    return [
        *(sys.executable, "-m", "autoscale_enforcer.cli.main", "serve"),
        *("--redis-url", redis_url, "--cluster", cluster, "--replica-name", name),
        *ports,
        *flags,
    ]


async def _ready(process: asyncio.subprocess.Process) -> Served:
    assert process.stdout is not None
    line = await process.stdout.readline()
    assert line, f"a replica ended with {await process.wait()} before it was ready"
    said: dict[str, Any] = json.loads(line)
    ports = said["ports"].pop("own", None) or said["ports"]
    url = {door: f"http://{HOST}:{port}" for door, port in ports.items()}
    return Served(
        said["replica"], process, f"{url['extender']}/extender", url["agent"], url["admin"]
    )


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    await process.communicate()
