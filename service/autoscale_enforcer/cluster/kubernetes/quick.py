"""Short requests over kept connections of our own: what is sent to the API server for each pod.

aiohttp's client takes more than twice as long for one, and the difference is a tenth of all that a
bind costs this process. What is rare, what streams and what goes through a proxy is left to it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from urllib.parse import urlsplit

from autoscale_enforcer.cluster.kubernetes.access import Access

KEPT_FOR = 15.0
"""Seconds that a connection is kept unused: far less than any server or proxy keeps one."""

_BODILESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})

Answered = tuple[int, dict[str, str], bytes]
"""Status, headers by their names in lower case, and the body."""


@dataclass(slots=True, eq=False)
class _Line:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    tls: ssl.SSLContext | None
    """What it trusts."""
    idle_since: float = 0.0


class QuickLines:
    """The connections to one API server. `close` after the last request."""

    def __init__(self, access: Access, *, connect: timedelta) -> None:
        server = urlsplit(access.server)
        self._access, self._connect_within = access, connect.total_seconds()
        self._is_tls = server.scheme == "https"
        self._host, self._port = server.hostname or "", server.port or (443 if self._is_tls else 80)
        self._name = server.netloc.rpartition("@")[2]
        self._prefix = server.path.rstrip("/")
        self._idle: list[_Line] = []
        """The one used last is the last."""
        self._lines: set[_Line] = set()
        self._purging: asyncio.TimerHandle | None = None

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes
    ) -> Answered:
        """The whole answer, whatever its status. Never sent twice.

        Raises OSError, EOFError, ValueError or asyncio.LimitOverrunError where none came, or none
        that can be read; the connection is given up then, as it is where the caller is cancelled.
        """
        line = self._kept() or await self._connect()
        given = {"Host": self._name, **headers, "Content-Length": str(len(content))}
        head = [f"{method} {self._prefix}{path} HTTP/1.1"]
        head += [f"{name}: {value}" for name, value in given.items()]
        stays = False
        try:
            line.writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + content)
            status, found, body, stays = await _read_answer(line.reader)
        finally:
            if stays:
                self._keep(line)
            else:
                self._drop(line)
        return status, found, body

    def close(self) -> None:
        """Give up every connection, those in use too."""
        if self._purging:
            self._purging.cancel()
            self._purging = None
        for line in list(self._lines):
            self._drop(line)
        self._idle.clear()

    def _tls(self) -> ssl.SSLContext | None:
        return self._access.tls() if self._is_tls and self._access.tls else None

    def _kept(self) -> _Line | None:
        """One that the server has not ended, and that trusts the files as they are now."""
        tls = self._tls()
        while self._idle:
            line = self._idle.pop()
            if line.tls is tls and not (line.reader.at_eof() or line.writer.is_closing()):
                return line
            self._drop(line)
        return None

    async def _connect(self) -> _Line:
        tls = self._tls()
        try:
            async with asyncio.timeout(self._connect_within):
                reader, writer = await asyncio.open_connection(
                    self._host,
                    self._port,
                    ssl=(tls or True) if self._is_tls else None,
                    server_hostname=self._access.server_name if self._is_tls else None,
                )
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionError(f"Cannot connect to {self._name}: {error}") from error
        line = _Line(reader, writer, tls)
        self._lines.add(line)
        return line

    def _keep(self, line: _Line) -> None:
        loop = asyncio.get_running_loop()
        line.idle_since = loop.time()
        self._idle.append(line)
        if self._purging is None:
            self._purging = loop.call_later(KEPT_FOR, self._purge, loop)

    def _purge(self, loop: asyncio.AbstractEventLoop) -> None:
        """Drop those that have been idle for long, and look again when the next may have been."""
        self._purging = None
        while self._idle and self._idle[0].idle_since + KEPT_FOR <= loop.time():
            self._drop(self._idle.pop(0))
        if self._idle:
            self._purging = loop.call_at(self._idle[0].idle_since + KEPT_FOR, self._purge, loop)

    def _drop(self, line: _Line) -> None:
        self._lines.discard(line)
        line.writer.close()


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes, bool]:
    """The answer, and whether the connection may be used again."""
    version, status, headers = await _read_head(reader)
    while status < HTTPStatus.OK:  # "go on", and the like, before the answer itself
        version, status, headers = await _read_head(reader)
    stays = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    if status in _BODILESS:
        return status, headers, b"", stays
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return status, headers, await _read_chunks(reader), stays
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
        return status, headers, body, stays
    return status, headers, await reader.read(), False


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, int, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    version, status, *_ = first.split(" ", 2)
    if not version.startswith("HTTP/1."):
        raise ValueError(f"no HTTP: {first[:40]!r}")
    fields = (line.partition(":") for line in lines if line)
    return version, int(status), {name.strip().lower(): value.strip() for name, _, value in fields}


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # fields behind the body
    return b"".join(parts)
