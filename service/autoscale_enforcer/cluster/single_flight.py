"""One read for all who ask for the same thing at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SingleFlight(Generic[K, T]):
    """Reads that are under way, by what they are for."""

    def __init__(self, name: str, read: Callable[[K], Coroutine[Any, Any, T]]) -> None:
        self._name, self._read = name, read
        self._under_way: dict[K, asyncio.Task[T]] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def task(self, key: K) -> asyncio.Task[T]:
        """The read for that key, begun now unless it is under way; to be waited for shielded."""
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._read(key), name=self._name)
            self._under_way[key] = task
            task.add_done_callback(lambda ended: self._end(key, ended))
        return task

    async def close(self) -> None:
        """End what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, key: K, task: asyncio.Task[T]) -> None:
        self._under_way.pop(key, None)
        if not task.cancelled():
            task.exception()  # callers that went away leave no unhandled error behind
