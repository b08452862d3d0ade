"""Finds the Redis primary behind a URL and keeps one bounded set of connections to it.

URLs: `redis://`, `unix://`, `redis+sentinel://host[:port],host/name[/db]` and
`redis+cluster://host[:port],host`; with TLS `rediss://`, `rediss+sentinel://` (Redis and Sentinels)
and `rediss+cluster://`.
"""

from __future__ import annotations

from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.connection import parse_url

from autoscale_enforcer.errors import ConfigError
from autoscale_enforcer.ledger.client import ConnectionSettings, Maker
from autoscale_enforcer.ledger.sentinel import ViaSentinel
from autoscale_enforcer.ledger.slots import ViaCluster

__all__ = ["ConnectionSettings", "Connector", "connector"]

_SENTINEL_PORT, _REDIS_PORT = 26379, 6379
_PLAIN_QUERY = {"db"}
"""All that a URL's query may say: the rest is set here on purpose, or a setting of its own."""


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
    kind, _, way = parts.scheme.partition("+")
    maker = Maker(settings, _user_of(parts), is_tls=kind == "rediss")
    if parts.scheme in ("redis", "rediss", "unix"):
        return _Direct(settings.url, maker)
    if kind in ("redis", "rediss") and way == "sentinel":
        name, _, database = parts.path.strip("/").partition("/")
        if not name or (database and not database.isdigit()):
            raise ConfigError([f"redis url: {parts.scheme}://host,host/NAME[/DB] expected"])
        return ViaSentinel(_hosts(parts, _SENTINEL_PORT), name, maker, database=int(database or 0))
    if kind in ("redis", "rediss") and way == "cluster":
        return ViaCluster(_hosts(parts, _REDIS_PORT), maker, slot_key=slot_key)
    raise ConfigError([f"redis url: unknown scheme {parts.scheme!r}"])


def _hosts(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    hosts = []
    for item in parts.netloc.rpartition("@")[2].split(","):
        host, _, port = item.partition(":")
        if not host or (port and not (port.isdigit() and 0 < int(port) < 65536)):
            raise ConfigError([f"redis url: {item!r} is no host[:port]"])
        hosts.append((host, int(port) if port else default_port))
    return hosts


def _user_of(parts: SplitResult) -> tuple[str, str]:
    """User and password of a URL, each empty where it has none."""
    user, _, secret = parts.netloc.rpartition("@")[0].partition(":")
    return unquote(user), unquote(secret)


class _Direct:
    def __init__(self, url: str, maker: Maker) -> None:
        try:
            found = dict(parse_url(url))
        except ValueError as error:
            raise ConfigError([f"redis url: {error}"]) from error
        for name in ("connection_class", "username", "password"):
            found.pop(name, None)
        if foreign := found.keys() - {"host", "port", "path", *_PLAIN_QUERY}:
            raise ConfigError([f"redis url: {', '.join(sorted(foreign))} cannot be set in the URL"])
        self._client = maker.client(**found)

    async def connect(self) -> Redis:
        await self._client.connection_pool.disconnect(inuse_connections=False)
        return self._client

    async def close(self) -> None:
        await self._client.aclose()
