"""Child processes that cannot outlive `dev`, and one folder for their files.

All of them are in one process group, apart from the terminal's, so that Ctrl-C reaches `dev` only
and it stops them in order. The group's leader is a guard: a shell that waits for the end of its
stdin, which comes when `dev` ends in whatever way, SIGKILL included, and then removes the folder
and kills the group, itself last.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_GUARD = 'trap "" INT TERM HUP; read -r _; rm -rf "$1"; kill -KILL 0'


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """Where `dev` starts its children."""

    leader: int
    folder: Path
    """Gone with the group."""

    async def spawn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> Process:
        """Start a child; it has no stdin, for it is in the terminal's background."""
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=dict(environment),
            process_group=self.leader,
        )


@asynccontextmanager
async def process_group() -> AsyncIterator[ProcessGroup]:
    """A group with its guard; whatever is still in it at the end of the block is killed."""
    # A short name: the path of a unix socket in it has room for 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="ae-dev-"))
    try:
        guard = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _GUARD, "sh", str(folder)), stdin=PIPE, process_group=0
        )
        try:
            yield ProcessGroup(guard.pid, folder)
        finally:
            if guard.stdin:
                guard.stdin.close()
            await guard.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def stop(processes: Sequence[Process], *, seconds: float) -> None:
    """Ask them all to end, and kill those that have not after so many seconds."""
    for process in processes:
        _send(process, signal.SIGTERM)
    waits = [asyncio.ensure_future(process.wait()) for process in processes]
    if waits:
        _, late = await asyncio.wait(waits, timeout=seconds)
        for process, wait in zip(processes, waits, strict=True):
            if wait in late:
                _send(process, signal.SIGKILL)
        await asyncio.gather(*waits)


def _send(process: Process, how: signal.Signals) -> None:
    if process.returncode is None:
        process.send_signal(how)
