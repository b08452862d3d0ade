"""Finds the Redis primary behind a URL and keeps one bounded set of connections to it.

Every setting of the client is made here on purpose: redis-py's defaults retry ten times with 5 s
each, and ran one script eleven times. Here nothing is retried: the pipeline does that, once.

URLs: `redis://`, `rediss://`, `unix://`, `redis+sentinel://host[:port],host/name[/db]` and
`redis+cluster://host[:port],host`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis, Sentinel
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import RedisError

from autoscale_enforcer.errors import ConfigError, LedgerUnavailable

_SENTINEL_PORT, _REDIS_PORT = 26379, 6379


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """How to reach Redis."""

    url: str
    socket_timeout: float = 0.5
    """Seconds without an answer after which a connection is given up."""
    max_connections: int = 8
    password: str | None = None
    """Used where the URL has none; it never appears in a URL of ours."""


class Connector(Protocol):
    """Finds the primary; asked again whenever the one it found turned out not to be."""

    async def connect(self) -> Redis:
        """A client of the server that is primary now; LedgerUnavailable where none is found."""
        ...

    async def close(self) -> None:
        """End every connection, those to Sentinels too."""
        ...


def connector(settings: ConnectionSettings, *, slot_key: str) -> Connector:
    """The way to the primary that the URL names; ConfigError where it is no such URL.

    `slot_key` is any key of the ledger: in a Redis Cluster it picks the server.
    """
    try:
        parts = urlsplit(settings.url)
    except ValueError as error:
        raise ConfigError([f"redis url: {error}"]) from error
    if parts.scheme in ("redis", "rediss", "unix"):
        return _Direct(settings)
    if parts.scheme == "redis+sentinel":
        return _ViaSentinel(settings, parts)
    if parts.scheme == "redis+cluster":
        return _ViaCluster(settings, parts, slot_key)
    raise ConfigError([f"redis url: unknown scheme {parts.scheme!r}"])


def _options(settings: ConnectionSettings) -> dict[str, Any]:
    return {
        "socket_timeout": settings.socket_timeout,
        "socket_connect_timeout": settings.socket_timeout,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "protocol": 2,
        "decode_responses": False,
        **({"password": settings.password} if settings.password else {}),
    }


def _pool(settings: ConnectionSettings, url: str, **more: Any) -> Redis:
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=settings.max_connections,
        timeout=settings.socket_timeout,
        **{**_options(settings), **more},
    )
    return Redis.from_pool(pool)


def _hosts(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    hosts = []
    for item in parts.netloc.rpartition("@")[2].split(","):
        host, _, port = item.partition(":")
        if not host or (port and not (port.isdigit() and 0 < int(port) < 65536)):
            raise ConfigError([f"redis url: {item!r} is no host[:port]"])
        hosts.append((host, int(port) if port else default_port))
    return hosts


def _credentials(parts: SplitResult) -> dict[str, str]:
    user, _, secret = parts.netloc.rpartition("@")[0].partition(":")
    return {
        **({"username": unquote(user)} if user else {}),
        **({"password": unquote(secret)} if secret else {}),
    }


class _Direct:
    def __init__(self, settings: ConnectionSettings) -> None:
        try:
            self._client = _pool(settings, settings.url)
            # An unknown option shows only here.
            self._client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        except (ValueError, TypeError) as error:
            raise ConfigError([f"redis url: {error}"]) from error

    async def connect(self) -> Redis:
        await self._client.connection_pool.disconnect(inuse_connections=False)
        return self._client

    async def close(self) -> None:
        await self._client.aclose()


class _ViaSentinel:
    def __init__(self, settings: ConnectionSettings, parts: SplitResult) -> None:
        name, _, database = parts.path.strip("/").partition("/")
        if not name or (database and not database.isdigit()):
            raise ConfigError(["redis url: redis+sentinel://host,host/NAME[/DB] expected"])
        self._settings, self._name = settings, name
        self._database = int(database or 0)
        self._credentials = _credentials(parts)
        options = _options(settings)
        options.pop("password", None)
        # As sentinel_kwargs, or the Sentinels' own clients would retry ten times.
        self._sentinel = Sentinel(  # type: ignore[no-untyped-call]
            _hosts(parts, _SENTINEL_PORT), sentinel_kwargs=options
        )
        self._found: tuple[tuple[str, int], Redis] | None = None

    async def connect(self) -> Redis:
        try:
            address = await self._sentinel.discover_master(self._name)
        except RedisError as error:
            raise LedgerUnavailable(f"no Sentinel names a primary {self._name!r}") from error
        if self._found and self._found[0] == address:
            await self._found[1].connection_pool.disconnect(inuse_connections=False)
            return self._found[1]
        if self._found:
            await self._found[1].aclose()
        url = f"redis://{address[0]}:{address[1]}/{self._database}"
        client = _pool(self._settings, url, **self._credentials)
        self._found = (address, client)
        return client

    async def close(self) -> None:
        if self._found:
            await self._found[1].aclose()
        for sentinel in self._sentinel.sentinels:
            await sentinel.aclose()


class _ViaCluster:
    def __init__(self, settings: ConnectionSettings, parts: SplitResult, slot_key: str) -> None:
        self._settings, self._seeds = settings, _hosts(parts, _REDIS_PORT)
        self._credentials = _credentials(parts)
        self._slot = key_slot(slot_key.encode())
        self._found: tuple[tuple[str, int], Redis] | None = None

    async def connect(self) -> Redis:
        address = await self._owner()
        if self._found and self._found[0] == address:
            await self._found[1].connection_pool.disconnect(inuse_connections=False)
            return self._found[1]
        if self._found:
            await self._found[1].aclose()
        client = self._client(*address)
        self._found = (address, client)
        return client

    async def close(self) -> None:
        if self._found:
            await self._found[1].aclose()

    def _client(self, host: str, port: int) -> Redis:
        return _pool(self._settings, f"redis://{host}:{port}", **self._credentials)

    async def _owner(self) -> tuple[str, int]:
        for host, port in self._seeds:
            client = self._client(host, port)
            try:
                ranges = await client.cluster("SLOTS")
            except (RedisError, OSError):
                continue
            finally:
                await client.aclose()
            owner = self._owner_in(ranges, host)
            if owner:
                return owner
        raise LedgerUnavailable(f"no server of the Redis Cluster names an owner of {self._slot}")

    def _owner_in(self, ranges: Any, seed: str) -> tuple[str, int] | None:
        if isinstance(ranges, dict):  # redis-py parses the answer into {(first, last): {...}}
            found = [v["primary"] for (low, high), v in ranges.items() if low <= self._slot <= high]
        else:
            found = [r[2] for r in ranges if r[0] <= self._slot <= r[1]]
        if not found:
            return None
        host, port = found[0][0], int(found[0][1])
        host = host.decode() if isinstance(host, bytes) else host
        return (host or seed, port)
