"""One time limit for many things that wait at once, with one timer for all of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class TimeLimit:
    """`with limit.each(): await …` raises TimeoutError where that takes longer.

    As `asyncio.timeout`, which sets a timer of its own each time: for what is asked thousands of
    times a second and hardly ever late, that is most of what waiting costs. For one event loop.
    """

    def __init__(self, within: timedelta) -> None:
        self.seconds = within.total_seconds()
        self._waits: dict[_Wait | asyncio.Future[Any], float] = {}
        """When each is late; all have the same time, so that the oldest is the first."""
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def each(self) -> _Wait:
        """A context in which the task that enters it waits."""
        return _Wait(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The one that runs; kept, for each look for it costs a system call."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    async def of(self, future: asyncio.Future[T]) -> T:
        """What the future gives. Where that takes longer it ends, so it should be nobody else's.

        Cheaper than a context around it.
        """
        self.begin(future, future.get_loop())
        try:
            return await future
        finally:
            self.end(future)

    def begin(self, wait: _Wait | asyncio.Future[Any], loop: asyncio.AbstractEventLoop) -> None:
        """It is late so many seconds from now."""
        self._waits[wait] = due = loop.time() + self.seconds
        if self._timer is None:
            self._timer = loop.call_at(due, self._end_late, loop)

    def end(self, wait: _Wait | asyncio.Future[Any]) -> None:
        """It waits no longer. Safe to repeat."""
        self._waits.pop(wait, None)

    def _end_late(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now = None, loop.time()
        while self._waits:
            wait, due = next(iter(self._waits.items()))
            if due > now:
                self._timer = loop.call_at(due, self._end_late, loop)
                return
            del self._waits[wait]
            if isinstance(wait, _Wait):
                wait.give_up()
            elif not wait.done():
                wait.set_exception(TimeoutError())


class _Wait:
    """One task's."""

    __slots__ = ("_cancelling", "_is_late", "_limit", "_task")

    def __init__(self, limit: TimeLimit) -> None:
        self._limit = limit
        self._is_late = False

    def __enter__(self) -> None:
        loop = self._limit.loop
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("only a task can wait")
        self._task, self._cancelling = task, task.cancelling()
        self._limit.begin(self, loop)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._limit.end(self)
        # Somebody else may have cancelled the task as well: then that is what ends it.
        if (
            self._is_late
            and self._task.uncancel() <= self._cancelling
            and kind is asyncio.CancelledError
        ):
            raise TimeoutError from error

    def give_up(self) -> None:
        """End what it waits for."""
        self._is_late = True
        self._task.cancel()
