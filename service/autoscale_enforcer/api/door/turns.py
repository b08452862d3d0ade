"""How many requests of a port are worked on at once, and whose is begun next.

A request counts from when it has come whole until its handler has ended, even where its client
went away meanwhile: it is the work that is limited, and a body that trickles in is none yet.

Addresses take turns: in each round of the event loop a few requests are begun, one of each address
that waits before a second of any. So whoever floods a port waits for itself, and a request of
somebody else is begun in the next round.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from autoscale_enforcer.errors import Overloaded

BEGUN_IN_A_ROUND = 4
"""So many requests are all that one of another address waits for. Fewer would cost throughput."""


class Turns:
    """The requests in flight at one port."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._share = max(1, limit // 2)
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By address, the one whose turn it is first; never an empty queue."""
        self._left = BEGUN_IN_A_ROUND
        self._is_round_open = False
        self.count = 0
        """Begun, or waiting to be."""
        self.refused = 0
        """How many were told to ask again."""

    def check(self, address: str) -> None:
        """Overloaded where the address could not begin another request now."""
        if self.count >= self._limit or self._running[address] >= self._share:
            self.refused += 1
            raise Overloaded("too many requests at once: ask again")

    async def begin(self, address: str) -> None:
        """Returns when it is this request's turn; Overloaded where that would be one too many.

        Where it returns, `end` must follow; where it raises, it must not.
        """
        self.check(address)
        self._running[address] += 1
        self.count += 1
        if self._left > 0 and not self._waiting:
            self._take()
            return
        try:
            await self._in_line(address)
        except BaseException:
            self.end(address)
            raise

    def end(self, address: str) -> None:
        """One that was begun has ended."""
        self._running[address] -= 1
        if not self._running[address]:
            del self._running[address]
        self.count -= 1

    async def _in_line(self, address: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        self._open_round()
        await turn

    def _take(self) -> None:
        self._left -= 1
        self._open_round()

    def _open_round(self) -> None:
        """Another round follows this one."""
        if not self._is_round_open:
            self._is_round_open = True
            asyncio.get_running_loop().call_soon(self._next_round)

    def _next_round(self) -> None:
        self._is_round_open = False
        self._left = BEGUN_IN_A_ROUND
        while self._left and self._waiting:
            address = next(iter(self._waiting))
            turns = self._waiting.pop(address)
            turn = turns.popleft()
            if turns:
                self._waiting[address] = turns  # behind the others
            if not turn.done():  # its client has not gone
                turn.set_result(None)
                self._take()
