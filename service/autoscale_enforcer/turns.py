"""Lets long work share the event loop with others: a loop that never waits, a list held whole."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

_TURN = 0.005
"""Seconds after which other tasks have theirs."""
_NEVER = 1 << 30


class Turns:
    """Gives the event loop back now and then to a loop that never waits."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pause(self) -> None:
        """Let others run, if this turn has been long enough."""
        if time.perf_counter() - self._began >= _TURN:
            await asyncio.sleep(0)
            self._began = time.perf_counter()


class FullCollections:
    """Python's collections of everything, which walk all there is at once.

    With a list of 150,000 pods in memory one was measured to stop the process for 0.2 s, and
    there are many while such a list grows. Young objects are collected as ever.
    """

    _held_off = 0
    _thresholds = gc.get_threshold()

    @classmethod
    @contextmanager
    def held_off(cls) -> Iterator[None]:
        """None while this lasts, which it should only until the list is dropped."""
        if not cls._held_off:
            cls._thresholds = gc.get_threshold()
            gc.set_threshold(*cls._thresholds[:2], _NEVER)
        cls._held_off += 1
        try:
            yield
        finally:
            cls._held_off -= 1
            if not cls._held_off:
                gc.set_threshold(*cls._thresholds)
