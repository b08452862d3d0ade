"""One replica as a child process: started, watched until it is ready, and started again."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autoscale_enforcer.dev.log_tail import last_lines
from autoscale_enforcer.dev.ports import HOST
from autoscale_enforcer.dev.process_group import ProcessGroup
from autoscale_enforcer.dev.ready_line import BoundPorts, ReadyLine
from autoscale_enforcer.errors import ServiceError

START_SECONDS = 30.0
"""From its start to its readiness; the largest cluster file takes a few."""


class StartFailed(ServiceError):
    """A replica ended, or did nothing, before it was ready."""

    def __init__(self, words: str, *, code: int | None) -> None:
        super().__init__(words)
        self.code = code
        """What it ended with; None where it did not end."""


@dataclass(slots=True)
class ReplicaProcess:
    """A replica under a name; over its deaths it keeps name and ports."""

    name: str
    command: tuple[str, ...]
    """`serve` with its options, but for its name and its own ports."""
    environment: Mapping[str, str]
    group: ProcessGroup
    ports: BoundPorts = field(default_factory=BoundPorts)
    """Its own; free ones until it has told them."""
    _process: Process | None = None
    _log_begins: int = 0
    _last_answer: str = ""

    @property
    def has_started(self) -> bool:
        """It has a process, alive or not."""
        return self._process is not None

    @property
    def process(self) -> Process:
        """The one that runs now, or ran last."""
        if self._process is None:
            raise AssertionError(f"{self.name} was never started")
        return self._process

    @property
    def log(self) -> Path:
        """What it writes to stderr, in all of its lives."""
        return self.group.folder / f"{self.name}.log"

    async def start(self) -> None:
        """Start it, or start it again; `become_ready` waits for what comes of it."""
        own = f"{self.ports.extender},{self.ports.agent},{self.ports.admin}"
        with self.log.open("ab") as log:
            self._log_begins = log.tell()
            self._process = await self.group.spawn(
                [*self.command, "--replica-name", self.name, "--own-ports", own],
                environment=self.environment,
                stdout=PIPE,
                stderr=log,
            )

    async def become_ready(self) -> None:
        """Wait until it answers and says that it is ready. Raises StartFailed."""
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._tell_ports()
                while not await self._is_ready():  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.02)
        except TimeoutError as error:
            words = f"{self.name} is not ready after {START_SECONDS:g} s{self._last_answer}"
            raise StartFailed(self._with_log(words), code=None) from error

    async def end(self) -> str:
        """Wait until it ends; how it ended, and its last lines."""
        await self.process.wait()
        return self._with_log(f"{self.name} has ended {self._how()}")

    async def _tell_ports(self) -> None:
        stdout = self.process.stdout
        line = await stdout.readline() if stdout else b""
        if not line:
            await self._fail_as_ended()
        ports = ReadyLine.decode(line).ports
        self.ports = ports.own or ports

    async def _is_ready(self) -> bool:
        if self.process.returncode is not None:
            await self._fail_as_ended()
        status = await _status_line(self.ports.admin, "/readyz")
        self._last_answer = f": its /readyz answers {status}" if status else ""
        return status.startswith("200")

    async def _fail_as_ended(self) -> None:
        code = await self.process.wait()
        raise StartFailed(
            self._with_log(f"{self.name} ended before it was ready, {self._how()}"), code=code
        )

    def _how(self) -> str:
        code = self.process.returncode or 0
        return f"with exit code {code}" if code >= 0 else f"by signal {-code}"

    def _with_log(self, words: str) -> str:
        lines = last_lines(self.log, since=self._log_begins)
        return "\n".join([f"{words}, after saying:" if lines else f"{words}.", *lines])


async def _status_line(port: int, path: str) -> str:
    """`200 OK`, or whatever it answers; empty where nobody does."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return ""
    try:
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        first = await reader.readline()
        return first.decode(errors="replace").partition(" ")[2].strip()
    except OSError:
        return ""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
