"""Long-running tasks: named, restarted when they fail, counted, and ended together."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Self

log = logging.getLogger(__name__)

RESTART_AFTER = 1.0
"""Seconds before a task that failed is started again, so that it cannot spin."""


class Background:
    """Owns every long-running task of a process, so that none can die unseen."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._is_ending = False
        self.failures: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End every task, and wait until they have ended. Safe to repeat."""
        self._is_ending = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` until this is closed; again where it fails."""
        self._tasks.append(asyncio.create_task(self._keep(name, work), name=name))

    async def _keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception:
                self.failures[name] += 1
                log.exception("%s failed and is started again", name)
            if self._is_ending:
                return  # it failed, or ended, of being cancelled
            await asyncio.sleep(RESTART_AFTER)
