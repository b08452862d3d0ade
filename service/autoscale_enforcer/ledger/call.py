"""One script run: how it is asked for, who waits for it, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from autoscale_enforcer.ledger.scripts import Script


@dataclass(slots=True, eq=False)
class Call:
    """Where the answer of one script run goes, and how its arguments are made when it is sent."""

    script: Script
    arguments: Callable[[str], dict[str, str | int | bytes]]
    """Given the epoch that this replica knows when the call is sent."""
    building: bool = False
    """Runs on the keys beside the books."""
    guarded: bool = True
    """False for what must run while no books are built: lease and build."""
    any_schema: bool = False
    """May run on rows of another release: what reads none of them, and what migrates them."""
    tells: bool = False
    """Somebody relies on the answer: it waits until the books are as safe as was asked for."""
    denials: frozenset[str] = frozenset()
    """Words that say that nothing was granted."""
    on_answer: Callable[[list[Any]], None] | None = None
    """Run before anything newer is sent."""
    is_queued: bool = False
    is_sent: bool = False
    may_come_late: bool = False
    """It was sent over a connection that was lost then, and may still be carried out from there."""
    is_done: bool = False
    refused: int = 0
    _answer: list[Any] | None = None
    _error: Exception | None = None
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def ending(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Done when the call is; of whoever waits its own, so that one may give up without all."""
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiting)
        return waiting

    def result(self) -> list[Any]:
        """The answer of a call that is done; raises what it ended with."""
        if self._answer is None:
            raise self._error or AssertionError("a call that has ended did so somehow")
        return self._answer

    def answer(self, answer: list[Any]) -> None:
        """It ends with that answer."""
        self._answer = answer
        self._end()

    def fail(self, error: Exception) -> None:
        """It ends with that error."""
        self._error = error
        self._end()

    def _end(self) -> None:
        self.is_done = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
