"""One program under test: started, awaited, ended by its own pid, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

START_SECONDS = 100.0
"""kube-apiserver needs 3 s on two idle cores, and several times that on busy ones."""

STOP_SECONDS = 20.0

# Ends the program when the write end of its stdin is closed, however we died; SIGKILL included.
WATCHDOG = 'read -r _; kill -KILL "$1"; rm -rf "$2"'

RUNNING: dict[int, Process] = {}
"""By pid; a failing test shows what they wrote."""


class Process:
    """A program whose log is in `folder`; `stop`, `kill` and `start` may follow each other.

    The folder goes with us if we are killed: it is no place for what must stay.
    """

    def __init__(
        self,
        command: list[str],
        *,
        folder: Path,
        is_ready: Callable[[], bool],
        env: dict[str, str] | None = None,
    ) -> None:
        self.command = command
        self.env = env or {}
        """Beside our own; may be changed for the next life."""
        self.folder = folder
        self.is_ready = is_ready
        self.name = Path(command[0]).name
        """Of its log, too."""
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """It was started, and has neither been ended nor ended by itself."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ValueError(f"{self.name} is not running")
        return self._process.pid

    def log(self, last: int = 1_000_000) -> str:
        """What it wrote to stdout and stderr, in all its lives: the last so many bytes."""
        path = self.folder / f"{self.name}.log"
        return path.read_bytes()[-last:].decode(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Returns when it is ready; raises RuntimeError with its log when that does not come."""
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", WATCHDOG, "sh", str(self.pid), str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # or Ctrl-C would end it before us
        )
        RUNNING[self.pid] = self
        self._await_ready()

    def stop(self) -> None:
        """End in order, as SIGTERM does; by SIGKILL if that takes too long."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End at once, as a crash does."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """It keeps its connections and answers nothing, until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def _await_ready(self) -> None:
        end = time.monotonic() + START_SECONDS
        while self._process and self._process.poll() is None and time.monotonic() < end:
            if self.is_ready():
                return
            time.sleep(0.01)
        self.kill()
        raise RuntimeError(f"{self.name} did not get ready:\n{self.log(10_000)}")

    def _end(self, how: signal.Signals) -> None:
        # The watchdog goes first: once the program is reaped its pid may be another process's.
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None
        if self._process is not None:
            self._process.send_signal(how)
            self._process.send_signal(signal.SIGCONT)  # a paused one would not hear SIGTERM
            try:
                self._process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            RUNNING.pop(self._process.pid, None)
            self._process = None
