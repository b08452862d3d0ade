"""One Redis primary with two replicas, and three Sentinels that watch over them: real processes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import redis
from typing_extensions import override

from tests.support.ports import free_port
from tests.support.servers import Server

NAME = "main"
"""Of the primary, as Sentinels know it."""
DOWN_AFTER_MS = 1000
"""Short, so that campaigns are quick; a real one has seconds."""

REDIS_CONF = """
save ""
appendonly yes
appendfsync everysec
auto-aof-rewrite-percentage 0
maxmemory-policy noeviction
min-replicas-to-write 1
min-replicas-max-lag 3
repl-diskless-sync yes
repl-diskless-sync-delay 0
repl-ping-replica-period 1
repl-timeout 10
repl-backlog-size 32mb
"""

SENTINEL_CONF = f"""
sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}
sentinel failover-timeout {NAME} 4000
sentinel parallel-syncs {NAME} 2
"""

UNREACHABLE = (redis.ConnectionError, redis.TimeoutError, redis.ResponseError, OSError)
"""What a server answers that is down, hangs or is still loading."""


class Member(Server):
    """A Redis or a Sentinel with a config file of its own, which it may rewrite."""

    def __init__(self, conf: str, *, is_sentinel: bool = False) -> None:
        super().__init__("redis")
        self.port = free_port()
        self._conf, self._is_sentinel = conf, is_sentinel

    @override
    def start(self) -> None:
        """As the file has it: what Sentinels made of it survives a restart."""
        if not self._file.exists():
            own = f"port {self.port}\nbind 127.0.0.1\nunixsocket {self.socket}\ndir {self.folder}\n"
            self._file.write_text(own + self._conf)
        super().start()

    def forget(self) -> None:
        """Its data are gone from its disk; only while it does not run."""
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)

    def info(self) -> dict[str, Any]:
        """Its INFO replication; empty where it does not answer."""
        try:
            with redis.Redis(port=self.port, socket_timeout=0.5) as client:
                found: Any = client.info("replication")
        except UNREACHABLE:
            return {}
        return dict(found)

    @property
    def _file(self) -> Path:
        return self.folder / "conf"

    @override
    def _settings(self) -> list[str]:
        return [str(self._file), *(["--sentinel"] if self._is_sentinel else [])]


@dataclass(frozen=True, slots=True)
class Health:
    """How the group is, by what its members say."""

    primary: Member | None
    """What the Sentinels that answer agree on, and that says so itself."""
    replicas: int
    """Connected to it and in step."""
    sentinels: int
    """That answer and see each other."""

    @property
    def is_whole(self) -> bool:
        """As at the beginning."""
        return self.primary is not None and self.replicas == 2 and self.sentinels == 3


class RedisGroup:
    """`with RedisGroup() as group:`; whole when it is entered."""

    def __init__(self, *, redis_conf: str = REDIS_CONF) -> None:
        self._redis_conf = redis_conf
        self.servers: list[Member] = []
        self.sentinels: list[Member] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            first = stack.enter_context(Member(self._redis_conf))
            follow = f"{self._redis_conf}replicaof 127.0.0.1 {first.port}\n"
            self.servers = [
                first,
                *(stack.enter_context(Member(follow)) for _ in range(2)),
            ]
            watch = f"sentinel monitor {NAME} 127.0.0.1 {first.port} 2\n{SENTINEL_CONF}"
            self.sentinels = [
                stack.enter_context(Member(watch, is_sentinel=True)) for _ in range(3)
            ]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def primary(self) -> Member | None:
        """What most Sentinels say that can be asked; None where there is no such majority."""
        votes = [port for port in map(self._named_by, self.sentinels) if port]
        return next(
            (each for each in self.servers if votes.count(each.port) * 2 > len(votes)), None
        )

    def health(self) -> Health:
        """How it is now; asks every member."""
        primary = self.primary()
        info = primary.info() if primary else {}
        if info.get("role") != "master":
            return Health(None, 0, len(list(self._seeing())))
        online = [
            each
            for name, each in info.items()
            if name.startswith("slave") and isinstance(each, dict) and each["state"] == "online"
        ]
        return Health(primary, len(online), len(list(self._seeing())))

    async def until_whole(self) -> Member:
        """Wait until every member is in its place; the primary then."""
        while True:
            health = await asyncio.to_thread(self.health)
            if health.is_whole and health.primary:
                return health.primary
            await asyncio.sleep(0.1)

    def others(self, primary: Member) -> list[Member]:
        """The servers that are not this one."""
        return [each for each in self.servers if each is not primary]

    def _named_by(self, sentinel: Member) -> int:
        try:
            with redis.Redis(port=sentinel.port, socket_timeout=0.5) as client:
                found: Any = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        except UNREACHABLE:
            return 0
        return int(found[1]) if found else 0

    def _seeing(self) -> Iterator[Member]:
        """Sentinels that see the primary, its replicas and each other."""
        for sentinel in self.sentinels:
            try:
                with redis.Redis(port=sentinel.port, socket_timeout=0.5) as client:
                    state: Any = client.sentinel_masters()[NAME]
            except (*UNREACHABLE, KeyError):
                continue
            flags = str(state["flags"])
            if state["num-other-sentinels"] == 2 and flags == "master":
                yield sentinel
