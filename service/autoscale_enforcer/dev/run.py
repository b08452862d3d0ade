"""The whole of it, from the private server to the last replica, and back down again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from autoscale_enforcer.dev.log_tail import last_lines
from autoscale_enforcer.dev.ports import HOST, hold_ports
from autoscale_enforcer.dev.private_server import NoServer, PrivateServer, private_server
from autoscale_enforcer.dev.process_group import ProcessGroup, process_group, stop
from autoscale_enforcer.dev.ready_block import Addresses
from autoscale_enforcer.dev.ready_line import BoundPorts
from autoscale_enforcer.dev.replica_process import ReplicaProcess

_STOP_SECONDS = 5.0
"""For replicas and commands to end in order; with the server's 2 s the whole stays below 10 s."""

INTERRUPTED = 128 + signal.SIGINT
"""Exit code where `--once` was cut off: its command has none that would mean anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevPlan:
    """What is to run."""

    server: str
    """Program of the private server."""
    serve: tuple[str, ...]
    """Command of a replica, without what differs from one to another or between runs."""
    replicas: int
    ports: BoundPorts
    """The shared ones; 0 stands for any free one."""
    demo: tuple[tuple[str, ...], ...] = ()
    """Commands run, in order, before all is said to be ready."""
    once: str | None = None
    """Shell command that is run when all is ready, and whose end is the end of everything."""
    when_ready: Callable[[Addresses, Sequence[ReplicaProcess]], None]
    tell: Callable[[str], None]
    """Says to people what happens meanwhile."""


async def run_dev(plan: DevPlan) -> int:
    """Run until Ctrl-C, SIGTERM or SIGHUP, or until the command of `once` has ended.

    Nothing is left behind in any case. Raises PortTaken, NoServer or StartFailed.
    """
    stopped = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(each, stopped.set)
    running = asyncio.create_task(_run(plan))
    signalled = asyncio.create_task(stopped.wait())
    await asyncio.wait({running, signalled}, return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if not running.done():
        plan.tell("Stopping.")
        running.cancel()
    try:
        return await running
    except asyncio.CancelledError:
        return INTERRUPTED if plan.once else 0


async def _run(plan: DevPlan) -> int:
    async with AsyncExitStack() as stack:
        addresses = Addresses(stack.enter_context(hold_ports(plan.ports)))
        group = await stack.enter_async_context(process_group())
        server = await stack.enter_async_context(private_server(plan.server, group))
        replicas = await stack.enter_async_context(_replicas(plan, addresses, server, group))
        return await _first_end(
            _commands(plan, addresses, replicas, group),
            _watch_server(server, group),
            *(_keep_alive(replica, plan.tell) for replica in replicas),
        )


@asynccontextmanager
async def _replicas(
    plan: DevPlan, addresses: Addresses, server: PrivateServer, group: ProcessGroup
) -> AsyncIterator[list[ReplicaProcess]]:
    command = (*plan.serve, *_shared_options(addresses.ports, server.url))
    replicas = [
        ReplicaProcess(f"replica-{number}", command, _environment(), group)
        for number in range(1, plan.replicas + 1)
    ]
    try:
        for replica in replicas:
            await replica.start()
        for replica in replicas:
            await replica.become_ready()
        yield replicas
    finally:
        started = [replica.process for replica in replicas if replica.has_started]
        await stop(started, seconds=_STOP_SECONDS)


def _shared_options(ports: BoundPorts, redis_url: str) -> tuple[str, ...]:
    return (
        *("--redis-url", redis_url, "--host", HOST, "--reuse-port"),
        *("--extender-port", str(ports.extender)),
        *("--agent-port", str(ports.agent)),
        *("--admin-port", str(ports.admin)),
    )


def _environment() -> Mapping[str, str]:
    """Ours, without what would be said of another Redis."""
    return {key: text for key, text in os.environ.items() if not key.startswith("AE_REDIS_")}


async def _first_end(*works: Coroutine[Any, Any, int]) -> int:
    """What the first of them to end came to; the others are cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(iter(done)).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _commands(
    plan: DevPlan, addresses: Addresses, replicas: list[ReplicaProcess], group: ProcessGroup
) -> int:
    environment = {**os.environ, **addresses.environment(), "PATH": _path_with_our_command()}
    for command in plan.demo:
        if code := await _run_command(command, environment, group):
            plan.tell(f"{' '.join(command[-2:])} ended with exit code {code}")
    plan.when_ready(addresses, replicas)
    if plan.once is None:
        await asyncio.Event().wait()
    return await _run_command(("/bin/sh", "-c", plan.once or ""), environment, group)


def _path_with_our_command() -> str:
    """`autoscale-enforcer` may be in a virtual environment that is not activated."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


async def _run_command(
    command: tuple[str, ...], environment: Mapping[str, str], group: ProcessGroup
) -> int:
    process = await group.spawn(command, environment=environment)
    try:
        code = await process.wait()
    finally:
        await _stop_late(process)
    return code if code >= 0 else 128 - code  # as a shell tells that a signal ended it


async def _stop_late(process: Process) -> None:
    if process.returncode is None:
        await stop([process], seconds=_STOP_SECONDS / 2)


async def _watch_server(server: PrivateServer, group: ProcessGroup) -> NoReturn:
    code = await server.process.wait()
    lines = last_lines(group.folder / "server.log")
    words = f"the private server has ended with exit code {code}; its books are lost"
    raise NoServer("\n".join([words, *lines]))


async def _keep_alive(replica: ReplicaProcess, tell: Callable[[str], None]) -> NoReturn:
    while True:
        tell(await replica.end())
        await replica.start()
        await replica.become_ready()
        tell(f"{replica.name} is back as process {replica.process.pid}, on the same ports.")
