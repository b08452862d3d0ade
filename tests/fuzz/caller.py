"""Sends requests to a replica and says what came back."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field

from tests.fuzz.requests import Sent

WITHIN = 20.0
"""Seconds for an answer; longer than whatever the replica waits for."""

A_MOMENT = 0.1
"""Seconds for an answer to what may be no request, which may never be answered."""


@dataclass(slots=True)
class Found:
    """What came back: statuses by door, and what must not come."""

    statuses: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[tuple[str, Sent, bytes]] = field(default_factory=list)

    def count(self, sent: Sent, head: bytes) -> None:
        """An answer, or none: empty."""
        status = head.split(b" ", 2)[1].decode() if head.startswith(b"HTTP/1.") else "none"
        self.statuses[sent.door, status] += 1
        if status.startswith("5") and status != "503":
            self.wrong.append((status, sent, head))
        if status == "none" and sent.is_whole:
            self.wrong.append(("no answer", sent, head))


class Caller:
    """One client; its connection to each door stays as long as the replica lets it."""

    def __init__(self, ports: dict[str, int], found: Found) -> None:
        self._ports, self._found = ports, found
        self._open: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def send(self, sent: Sent) -> None:
        """One request, whatever comes of it."""
        async with asyncio.timeout(WITHIN):
            if sent.is_whole:
                self._found.count(sent, await self._ask(sent))
            else:
                self._found.count(sent, await self._throw(sent))

    async def _ask(self, sent: Sent) -> bytes:
        is_new = sent.door not in self._open
        head = await self._exchange(sent)
        if not head and not is_new:
            head = await self._exchange(sent)  # the last answer had ended the connection
        return head

    async def _exchange(self, sent: Sent) -> bytes:
        if sent.door not in self._open:
            self._open[sent.door] = await asyncio.open_connection(
                "127.0.0.1", self._ports[sent.door]
            )
        reader, writer = self._open[sent.door]
        head = b""
        try:
            writer.write(sent.content)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(_length(head))
            if b"connection: close" in head.lower():
                self._hang_up(sent.door)
        except (OSError, asyncio.IncompleteReadError):
            self._hang_up(sent.door)
        return head

    async def _throw(self, sent: Sent) -> bytes:
        """Sent on a connection of its own; what may be no request is given a moment only."""
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._ports[sent.door])
            try:
                writer.write(sent.content)
                async with asyncio.timeout(A_MOMENT):
                    return await reader.readuntil(b"\r\n")
            finally:
                _end(writer)
        return b""

    def _hang_up(self, door: str) -> None:
        _end(self._open.pop(door)[1])

    def close(self) -> None:
        """No more."""
        for door in list(self._open):
            self._hang_up(door)


def _end(writer: asyncio.StreamWriter) -> None:
    """At once; closed as well, or its writer complains when it is forgotten."""
    writer.transport.abort()
    writer.close()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0
