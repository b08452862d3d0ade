"""One client's connection for as long as it sends nothing but plain requests.

Of what an answer costs, aiohttp has the larger part, for it is ready for anything that a client may
do. This is ready for one thing, and makes way for aiohttp's connection at all that is not that.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import NamedTuple, Protocol, cast

from autoscale_enforcer.api.door.client import Client, nothing
from autoscale_enforcer.api.door.places import Place, Places
from autoscale_enforcer.api.door.plain_head import PlainHeads
from autoscale_enforcer.api.door.turns import Turns
from autoscale_enforcer.config.settings import LimitSettings

if sys.version_info >= (3, 12):
    from typing import override
else:
    from typing_extensions import override


class Turn(Protocol):
    """A request that has come whole."""

    async def begin_turn(self) -> None:
        """Returns when it is worked on; Overloaded where too many are in flight."""
        ...


class Reply(NamedTuple):
    """An answer, but for what its connection adds."""

    head: bytes
    """Status line and headers, each with its line's end."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Plain:
    """How a port answers plain requests."""

    heads: PlainHeads
    answer: Callable[[bytes, Turn], Awaitable[Reply]]
    """Of a body. Never raises."""


class PlainConnection(asyncio.Protocol):
    """Its place, and since when its client owes us something. Among `there` while it is open."""

    def __init__(
        self,
        plain: Plain,
        *,
        place: Place,
        places: Places,
        turns: Turns,
        limits: LimitSettings,
        there: set[Client],
        tasks: set[asyncio.Task[None]],
        successor: Callable[[], asyncio.Protocol],
    ) -> None:
        self._plain, self._tasks, self._successor = plain, tasks, successor
        self.place, self._places, self._turns, self._there = place, places, turns, there
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        # What is idle owes us its next request, and has more time for it than for anything else.
        self._more_time = (limits.keep_alive - limits.read_timeout).total_seconds()
        self._wire: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_turn = False
        self._ahead = b""
        """Came before the last request was answered."""
        self._is_blocked = False
        """The client does not take its answers."""
        self.is_answering = False
        self.is_leaving = False
        """It ends with its next answer."""
        self._owing_since: float | None = self._now()

    # What asyncio calls

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast("asyncio.Transport", transport)
        self._wire.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.place.give_up = self.abort
        self._there.add(self)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self._places.leave(self.place)
        self._there.discard(self)
        # What refers to itself in a circle is freed seldom.
        self.place.give_up, self._wire = nothing, None

    @override
    def data_received(self, data: bytes) -> None:
        if self.is_answering or self._is_blocked:
            self._ahead += data
            if self._wire:
                self._wire.pause_reading()
            return
        body = self._plain.heads.body(data)
        if body is None:
            self._make_way(data)
            return
        self.is_answering, self._owing_since = True, None
        self._places.begin(self.place)
        task = self._task = self._loop.create_task(self._answer(body))
        self._tasks.add(task)

    @override
    def pause_writing(self) -> None:
        self._is_blocked, self._owing_since = True, self._now()

    @override
    def resume_writing(self) -> None:
        self._is_blocked = False
        self._owing_since = self._now() + self._more_time
        self._go_on()

    # What the port calls

    async def begin_turn(self) -> None:
        """Returns when the request is worked on; Overloaded where too many are in flight."""
        await self._turns.begin(self.place.caller.address)
        self._has_turn = True

    def owes_since(self, moment: float) -> bool:
        """The client has owed us something since before that moment."""
        return self._owing_since is not None and self._owing_since < moment

    def force_close(self) -> None:
        """End it when what was written is sent."""
        if self._wire:
            self._wire.close()

    def abort(self) -> None:
        """End it at once, whatever is still to be sent."""
        if self._wire:
            self._wire.abort()

    async def _answer(self, body: bytes) -> None:
        try:
            reply = await self._plain.answer(body, self)
        finally:
            self._end_turn()
        if self._wire and not self._wire.is_closing():
            self._write(self._wire, reply)

    def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turns.end(self.place.caller.address)
        self._places.end(self.place)
        self.is_answering = False
        if self._task:
            self._tasks.discard(self._task)
            self._task = None

    def _write(self, wire: asyncio.Transport, reply: Reply) -> None:
        now = self._now()
        self._owing_since = now if self.is_leaving else now + self._more_time
        head, body = reply
        length = b"Content-Length: %d\r\n" % len(body)
        last = b"Connection: close\r\n\r\n" if self.is_leaving else b"\r\n"
        wire.write(b"".join((head, length, _date(int(time.time())), last, body)))
        if self.is_leaving:
            wire.close()
        elif not self._is_blocked:
            self._go_on()

    def _go_on(self) -> None:
        """With what came meanwhile."""
        if self._ahead and self._wire and not self.is_answering:
            data, self._ahead = self._ahead, b""
            self._wire.resume_reading()
            self.data_received(data)

    def _make_way(self, data: bytes) -> None:
        wire = self._wire
        if wire is None:
            return
        self._there.discard(self)
        successor = self._successor()
        self._wire = None
        wire.set_protocol(successor)
        successor.connection_made(wire)
        successor.data_received(data)


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return f"Date: {formatdate(second, usegmt=True)}\r\n".encode()
