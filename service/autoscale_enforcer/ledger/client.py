"""Makes clients of Redis: every setting on purpose, TLS that verifies, secrets read when needed.

redis-py's defaults retry ten times with 5 s each, and ran one script eleven times. Here nothing is
retried: the exchange does that, once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import Connection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider

from autoscale_enforcer.errors import ConfigError
from autoscale_enforcer.watched_files import Watched

if sys.version_info >= (3, 12):
    from typing import override
else:
    from typing_extensions import override

Password = Callable[[], str]
"""Reads a password, as it is at that moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """How to reach Redis."""

    url: str
    socket_timeout: float = 0.5
    """Seconds without an answer after which a connection is given up."""
    max_connections: int = 8
    password: Password | None = None
    """Instead of one in the URL. Asked for with each new connection."""
    sentinel_user: str = ""
    sentinel_password: Password | None = None
    """Of the Sentinels, which have users of their own."""
    ca_file: Path | None = None
    """Whose certificates are believed with TLS; None: those that the system believes."""
    cert_file: Path | None = None
    """Shown to a server that asks for one, with its `key_file`."""
    key_file: Path | None = None


class Maker:
    """Makes clients of one Redis and of its Sentinels. ConfigError where a file cannot be used."""

    def __init__(
        self, settings: ConnectionSettings, user: tuple[str, str], *, is_tls: bool
    ) -> None:
        self._settings = settings
        name, in_url = user
        password = settings.password or ((lambda: in_url) if in_url else None)
        self._credentials = _credentials(name, password)
        self._of_sentinel = _credentials(settings.sentinel_user, settings.sentinel_password)
        self._context = _watched_context(settings) if is_tls else None

    def client(self, **where: Any) -> Redis:
        """A client of the server there: `host`, `port` and `db`, or `path` and `db`."""
        return self._client(self._credentials, where)

    def sentinel_client(self, host: str, port: int) -> Redis:
        """A client of a Sentinel."""
        return self._client(self._of_sentinel, {"host": host, "port": port})

    def _client(self, credentials: _Credentials | None, where: Mapping[str, Any]) -> Redis:
        timeout = self._settings.socket_timeout
        more: dict[str, Any] = {}
        connection_class: type[Any] = Connection
        if "path" in where:
            connection_class = UnixDomainSocketConnection
        elif self._context:
            connection_class, more = VerifiedConnection, {"context": self._context.current}
        if credentials:
            more["credential_provider"] = credentials
        pool = BlockingConnectionPool(
            max_connections=self._settings.max_connections,
            timeout=timeout,
            connection_class=connection_class,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
            protocol=2,
            decode_responses=False,
            # Two more questions for each connection, which a user with few rights may not ask.
            driver_info=None,
            **where,
            **more,
        )
        return Redis.from_pool(pool)


class VerifiedConnection(Connection):
    """With TLS: certificate and host name are verified, by the files as they are when it begins."""

    def __init__(self, *, context: Callable[[], SSLContext], **more: Any) -> None:
        super().__init__(**more)
        self._context = context

    @override
    def _connection_arguments(self) -> Mapping[str, Any]:
        return {**super()._connection_arguments(), "ssl": self._context()}


class _Credentials(CredentialProvider):
    def __init__(self, user: str, password: Password) -> None:
        self._user, self._password = user, password

    @override
    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = self._password()
        return (self._user, password) if self._user else (password,)

    @override
    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()


def _credentials(user: str, password: Password | None) -> _Credentials | None:
    return _Credentials(user, password) if password else None


def _watched_context(settings: ConnectionSettings) -> Watched[SSLContext]:
    files = [settings.ca_file, settings.cert_file, settings.key_file]

    def make() -> SSLContext:
        context = create_default_context(cafile=settings.ca_file)
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        return context

    try:
        return Watched(make, *filter(None, files))
    except (OSError, ValueError) as error:
        raise ConfigError([f"redis TLS files: {error}"]) from error
