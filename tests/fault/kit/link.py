"""A way between two processes: a TCP proxy that delays, loses, hangs, resets and cuts.

It knows nothing of what is said over it, so it stands before Redis, a Sentinel or the API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from tests.support.ports import free_port

HOST = "127.0.0.1"
CHUNK = 1 << 16
_NO_LINGER = struct.pack("ii", 1, 0)
"""A socket closed so sends RST instead of FIN, and what it still had to send is lost."""

Rewrite = Callable[[bytes], bytes]


@dataclass(eq=False, slots=True)
class _Pair:
    """One connection that came, and ours to the server for it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    is_dead: bool = False
    """The server has forgotten it, and its client does not know: nothing comes back."""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def end(self, *, by_reset: bool) -> None:
        for writer in filter(None, (self.client, self.server)):
            taken = writer.get_extra_info("socket")
            if by_reset and taken is not None:
                with contextlib.suppress(OSError, ValueError):  # it has ended already
                    taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            writer.transport.abort()
        for task in self.tasks:
            task.cancel()


class Link:
    """`async with Link(port) as link:` and connect to `link.port`, the same in all its states."""

    def __init__(self, target: int, *, rewrite: Rewrite | None = None, seed: int = 0) -> None:
        self.target = target
        self.port = free_port()
        self.delay = 0.0
        """Seconds that each piece waits, both ways."""
        self.drop_share = 0.0
        """Of answers, how many get lost, and their connection with them."""
        self._rewrite = rewrite
        self._random = random.Random(seed)
        self._passes = asyncio.Event()
        self._passes.set()
        self._is_half_open = False
        self._pairs: set[_Pair] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, HOST, self.port, backlog=512)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._listener:
            self._listener.close()
        self.reset()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    # What can happen to it

    def reset(self) -> None:
        """Every connection ends with RST, on both sides, and what was on its way is lost."""
        for pair in list(self._pairs):
            pair.end(by_reset=True)

    def cut(self) -> None:
        """Nothing passes until `heal`, and then everything that was on its way does."""
        self._passes.clear()

    def half_open(self) -> None:
        """Every connection is dead on the server's side, while its client takes it for alive; so is
        every new one until `heal`.
        """
        self._is_half_open = True
        for pair in self._pairs:
            pair.is_dead = True
            if pair.server:
                pair.server.transport.abort()

    def heal(self) -> None:
        """As if nothing had been; dead connections are reset now, as by a server that is asked
        whether they live.
        """
        self.delay = self.drop_share = 0.0
        self._is_half_open = False
        self._passes.set()
        for pair in [each for each in self._pairs if each.is_dead]:
            pair.end(by_reset=True)

    # Passing on

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = _Pair(writer, is_dead=self._is_half_open)
        self._pairs.add(pair)
        try:
            await self._passes.wait()
            asks = asyncio.ensure_future(self._ask(reader, pair))
            pair.tasks.append(asks)
            await asyncio.gather(asks, return_exceptions=True)
        finally:
            self._pairs.discard(pair)
            pair.end(by_reset=pair.is_dead)

    async def _ask(self, reader: asyncio.StreamReader, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            if not pair.is_dead:
                answers, pair.server = await asyncio.open_connection(HOST, self.target)
                pair.tasks.append(asyncio.ensure_future(self._answer(answers, pair)))
            while chunk := await reader.read(CHUNK):
                await self._wait()
                if pair.server and not pair.is_dead:
                    pair.server.write(chunk)
                    await pair.server.drain()

    async def _answer(self, reader: asyncio.StreamReader, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK):
                await self._wait()
                if self._random.random() < self.drop_share:
                    break
                pair.client.write(self._rewrite(chunk) if self._rewrite else chunk)
                await pair.client.drain()
        if not pair.is_dead:
            await self._close_in_order(pair)

    @staticmethod
    async def _close_in_order(pair: _Pair) -> None:
        """What was passed on arrives before the end does."""
        pair.client.close()
        with contextlib.suppress(OSError):
            await pair.client.wait_closed()

    async def _wait(self) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        await self._passes.wait()
