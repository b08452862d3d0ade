"""Answers that cost much, the same for everybody: one is made at a time, whoever asks how often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from autoscale_enforcer.api.http import in_time
from autoscale_enforcer.time_limit import TimeLimit


class OneAtATime:
    """Makes an answer for all who asked before it was begun; those who ask later share the next.

    Between two of them it rests for as long as the last one took: however often it is asked for,
    it has little more than half of this replica's time. A quarter of `within` is rest enough.
    """

    def __init__(self, name: str, make: Callable[[], Awaitable[bytes]], within: timedelta) -> None:
        self._name, self._make = name, make
        self._limit = TimeLimit(within)
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None
        self._tasks: set[asyncio.Task[bytes]] = set()
        self._rests_until = 0.0

    async def answer(self) -> bytes:
        """One that was begun after this call; TooLate where that takes too long."""
        if self._next is None:
            self._next = asyncio.create_task(self._run(), name=self._name)
            self._tasks.add(self._next)
            self._next.add_done_callback(self._end)
        return await in_time(asyncio.shield(self._next), self._limit)

    async def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self) -> bytes:
        loop = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(self._rests_until - loop.time())
            self._next, began = None, loop.time()
            try:
                return await in_time(self._make(), self._limit)
            finally:
                took = loop.time() - began
                self._rests_until = loop.time() + min(took, self._limit.seconds / 4)

    def _end(self, task: asyncio.Task[bytes]) -> None:
        self._tasks.discard(task)
        if task is self._next:  # ended before it was begun
            self._next = None
        if not task.cancelled():
            task.exception()  # callers that went away leave no unhandled error behind
