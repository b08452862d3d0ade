"""Lets a loop that never waits share the event loop with others."""

from __future__ import annotations

import asyncio
import time

_TURN = 0.005
"""Seconds after which other tasks have theirs."""


class Turns:
    """Gives the event loop back now and then to a loop that never waits."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pause(self) -> None:
        """Let others run, if this turn has been long enough."""
        if time.perf_counter() - self._began >= _TURN:
            await asyncio.sleep(0)
            self._began = time.perf_counter()
