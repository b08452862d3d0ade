"""What arrives while a round trip to Redis is in flight goes out together in the next one.

One round trip is in flight at a time; a retry goes before anything newer, and there is one retry
at most. Knows calls and their budgets, nothing of what the scripts mean.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from autoscale_enforcer.errors import LedgerUnavailable, ScriptContractError
from autoscale_enforcer.ledger.call import Call
from autoscale_enforcer.ledger.connection import Connector
from autoscale_enforcer.ledger.durability import Waiting
from autoscale_enforcer.ledger.exchange import Exchange, ExchangeSettings, Guard, as_ours
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.scripts import Script
from autoscale_enforcer.ledger.told import Noticed
from autoscale_enforcer.time_limit import TimeLimit

MAX_BATCH = 256
"""Calls in one pipeline at most, so that no round trip outlasts the socket timeout."""

EPOCH_RETRIES = 3
"""How often a call refused for its epoch is decided anew before the caller is told to ask again."""

NO_WAITING = Waiting()


class Pipeline:
    """The one way to Redis. `start` before use, `close` after."""

    def __init__(
        self,
        connector: Connector,
        keys: Keys,
        scripts: dict[str, Script],
        *,
        watch_replid: bool = True,
        journal_length: int,
        call_budget: timedelta,
        waiting: Waiting = NO_WAITING,
        checks_server: bool = False,
    ) -> None:
        self._scripts = scripts
        self.watch_replid = watch_replid
        self.exchange = Exchange(
            connector,
            keys,
            scripts,
            ExchangeSettings(
                watch_replid=watch_replid,
                journal_length=journal_length,
                waiting=waiting,
                checks_server=checks_server,
            ),
        )
        self._budget = TimeLimit(call_budget)
        self._queue: list[Call] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._last_stamp = 0

    @property
    def guard(self) -> Guard | None:
        """What the guard said last; None before the first answer."""
        return self.exchange.guard

    @property
    def noticed(self) -> Noticed:
        """What was seen of Redis since the start."""
        return self.exchange.noticed

    def start(self) -> None:
        """Begin sending."""
        self._loop = asyncio.get_running_loop()  # asked for once: it costs a system call
        self._task = self._loop.create_task(self._run(), name="ledger pipeline")

    async def close(self) -> None:
        """Stop sending; what is still waiting ends as LedgerUnavailable."""
        self._is_closing = True
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail(self._queue, LedgerUnavailable("the ledger is closed"))
        self._queue = []
        await self.exchange.close()

    def stamp(self) -> int:
        """Redis' time now in microseconds, reckoned from its last answer; never later than the
        truth, never the same twice. LedgerUnavailable before the first answer.
        """
        self._last_stamp = max(self._last_stamp + 1, self.redis_us())
        return self._last_stamp

    def redis_us(self) -> int:
        """Redis' time now in microseconds, as `stamp` reckons it."""
        if not self.exchange.redis_us:
            raise LedgerUnavailable("Redis has not answered yet")
        passed = time.monotonic() - self.exchange.heard_at
        return self.exchange.redis_us + int(passed * 1_000_000)

    def script(self, name: str) -> Script:
        """The script of that name."""
        return self._scripts[name]

    def send(self, call: Call) -> None:
        """Send the call with whatever else is waiting; nobody need wait for its answer."""
        if not call.is_queued:
            call.is_queued = True
            self._queue.append(call)
            self._wake.set()

    async def run(self, call: Call) -> list[Any]:
        """Send the call with whatever else is waiting; its answer, word first as str.

        A call may be waited for by several tasks; it is sent once.
        LedgerUnavailable where no answer came in time or no books are built.
        """
        self.send(call)
        try:
            if not call.is_done:
                await self._budget.of(call.ending(self._loop))
        except TimeoutError:
            late = LedgerUnavailable("Redis gave no answer in time")
            if not call.is_sent and not call.is_done:
                _end(call, late)  # what was given up before it was sent never is
            raise late from None
        return call.result()

    async def _run(self) -> None:
        # Not "while True": redis-py may turn the cancellation that ends this into another error.
        while not self._is_closing:
            await self._wake.wait()
            batch, self._queue = self._queue[:MAX_BATCH], self._queue[MAX_BATCH:]
            if not self._queue:
                self._wake.clear()
            batch = [call for call in batch if not call.is_done]
            if batch:
                await self._send(batch)

    async def _send(self, batch: list[Call]) -> None:
        try:
            await self._send_until_decided(batch)
        except LedgerUnavailable as error:
            self._fail(batch, error)
        except asyncio.CancelledError:
            self._fail(batch, LedgerUnavailable("the ledger is closed"))
            raise
        except Exception as error:  # noqa: BLE001 - the loop outlives a bug; each caller is told
            self._fail(batch, ScriptContractError(f"pipeline: {error!r}"))

    async def _send_until_decided(self, batch: list[Call]) -> None:
        if self.guard is None or self.guard.why_not:
            await self.exchange.run([], self._settle_at_once)
        undecided = [call for call in batch if not self._is_foreign(call)]
        while undecided := [call for call in undecided if not call.is_done]:
            answers = await self.exchange.run(undecided, self._settle_at_once)
            for call, answer in zip(undecided, answers, strict=True):
                self._settle(call, answer)

    def _settle_at_once(self, call: Call, answer: Any) -> None:
        """Hand an answer on before the others, unless the call must be decided anew."""
        if answer[0] != b"EPOCH":
            self._settle(call, answer)

    def _is_foreign(self, call: Call) -> bool:
        """Whether the rows are those of another release, which ends the call."""
        why_not = self.guard.why_not if self.guard else ""
        return bool(why_not) and not call.any_schema and _end(call, LedgerUnavailable(why_not))

    def _is_bookless(self, call: Call) -> bool:
        """Whether there are no books for it, which ends the call."""
        if call.guarded and self.guard and self.guard.state == "UNBUILT":
            return _end(call, LedgerUnavailable("the ledger is not built"))
        return False

    def _settle(self, call: Call, answer: Any) -> bool:
        """Hand the answer on; False where the call must be decided anew under a new epoch."""
        if call.is_done:
            return True
        if isinstance(answer, Exception):
            return _end(call, as_ours(call.script.name, answer))
        if self._is_foreign(call) or self._is_bookless(call):
            return True
        word = answer[0].decode()
        if word not in call.script.words:
            return _end(call, ScriptContractError(f"{call.script.name}: answered {word}"))
        if word == "EPOCH" and call.guarded:
            call.refused += 1
            if call.refused <= EPOCH_RETRIES:
                return False
            return _end(call, LedgerUnavailable("the ledger keeps beginning new epochs"))
        return _may_yet_grant(call, word) or _answer(call, [word, *answer[1:]])

    @staticmethod
    def _fail(calls: Sequence[Call], error: Exception) -> None:
        for call in calls:
            if not call.is_done:
                _end(call, error)


def _may_yet_grant(call: Call, word: str) -> bool:
    """Whether it says no while an earlier send may still come to a yes, which ends the call."""
    if not (call.may_come_late and word in call.denials):
        return False
    why = "the connection to Redis was lost meanwhile: ask again"
    return _end(call, LedgerUnavailable(why))


def _answer(call: Call, answer: list[Any]) -> bool:
    if call.on_answer:
        call.on_answer(answer)
    call.answer(answer)
    return True


def _end(call: Call, error: Exception) -> bool:
    call.fail(error)
    return True
