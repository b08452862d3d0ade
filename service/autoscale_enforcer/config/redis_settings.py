"""Where the ledger is, how it is reached, and how safe a change must be before it is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

DURABILITIES = ("none", "replica", "aof")

_CLUSTER_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PASSWORD = re.compile(r"(://[^:@/]*):.*@", re.DOTALL)

_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    """Where the ledger is and how long a call to it may take."""

    url: str = field(default="redis://127.0.0.1:6379/0", repr=False)
    """Server, Sentinel or Cluster. Not printed, for it may carry a password: see `shown_url`."""
    cluster_name: str = "default"
    """Of the Kubernetes cluster; part of every key, so that several can share one Redis."""
    password_file: Path | None = None
    """Holds the password, so that it appears in no process list; wins over one in the URL. Each of
    these files is read anew when it has changed; new connections use what it holds then."""
    sentinel_user: str = ""
    """Of the Sentinels, which have users of their own; the URL's user is the one of Redis."""
    sentinel_password_file: Path | None = None
    """Holds the Sentinels' password."""
    ca_file: Path | None = None
    """Whose certificates are believed with a `rediss` URL; else those that the system believes."""
    cert_file: Path | None = None
    """Shown to Redis and Sentinels, where they ask for a client's certificate."""
    key_file: Path | None = None
    """Of `cert_file`."""
    socket_timeout: timedelta = timedelta(seconds=0.5)
    """For one answer. A healthy primary needs microseconds; longer means that it is gone."""
    call_budget: timedelta = timedelta(seconds=2)
    """For a whole call, its one retry and the wait for a connection included. Below half of the 5 s
    that kube-scheduler gives an extender, so that the answer about trouble still arrives."""
    durability: str = "none"
    """What must have happened to a change before anybody is told of it: `none`, `replica` (it is
    at `wait_replicas` replicas of Redis) or `aof` (it is on the primary's disk)."""
    wait_replicas: int = 1
    """With durability `replica`. More than one costs availability: one that is down stops all."""
    wait_timeout: timedelta = timedelta(seconds=0.25)
    """For replicas or disk; then nothing is told. Below `socket_timeout`, or the connection would
    be given up instead. Replicas in one cluster need milliseconds."""
    max_connections: int = 8
    """Callers wait for a free one. One carries a pipeline at a time, so a few are plenty, and a
    fleet of replicas stays far below Redis' limit of 10,000 clients."""

    @property
    def shown_url(self) -> str:
        """The URL for logs and pages, its password hidden."""
        # Its query may hold one too. A password may hold any of @ : / ? - hide rather too much.
        return _PASSWORD.sub(r"\1:***@", self.url).partition("?")[0]

    def problems(self) -> Iterator[str]:
        """What cannot be used, field first."""
        if not self.url.partition("://")[2]:
            yield "redis.url: must be a URL such as redis://127.0.0.1:6379/0"
        if not _CLUSTER_NAME.fullmatch(self.cluster_name):
            yield "redis.cluster_name: must be 1 to 63 letters, digits, '.', '_' or '-'"
        if self.socket_timeout <= _NO_TIME:
            yield "redis.socket_timeout: must be above 0"
        if self.call_budget < 2 * self.socket_timeout:
            yield "redis.call_budget: must leave time for one retry: twice redis.socket_timeout"
        if self.max_connections < 1:
            yield "redis.max_connections: must be at least 1"
        yield from self._problems_of_waiting()
        yield from self._problems_of_tls()

    def _problems_of_tls(self) -> Iterator[str]:
        if not self.url.startswith("rediss"):
            for name in ("ca_file", "cert_file", "key_file"):
                if getattr(self, name):
                    yield f"redis.{name}: needs a URL with TLS, such as rediss://"
        elif bool(self.cert_file) != bool(self.key_file):
            yield "redis.cert_file: goes with redis.key_file"

    def _problems_of_waiting(self) -> Iterator[str]:
        if self.durability not in DURABILITIES:
            yield f"redis.durability: must be one of {', '.join(DURABILITIES)}"
        if self.wait_replicas < 1:
            yield "redis.wait_replicas: must be at least 1"
        if self.wait_timeout <= _NO_TIME:
            yield "redis.wait_timeout: must be above 0"
        elif _NO_TIME < self.socket_timeout <= self.wait_timeout:
            yield "redis.wait_timeout: must be below redis.socket_timeout"
