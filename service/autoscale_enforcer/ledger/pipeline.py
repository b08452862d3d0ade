"""Sends script calls to Redis: what arrives while a round trip is in flight goes out together.

One pipeline is in flight at a time, the guard first in each; a retry goes before anything newer,
and there is one retry at most. Knows scripts and connections, nothing of what the scripts mean.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ResponseError

from autoscale_enforcer.errors import LedgerUnavailable, ScriptContractError
from autoscale_enforcer.ledger.connection import Connector, is_lost_connection
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.scripts import Script

MAX_BATCH = 256
"""Calls in one pipeline at most, so that no round trip outlasts the socket timeout."""

EPOCH_RETRIES = 3
"""How often a call refused for its epoch is decided anew before the caller is told to ask again."""


@dataclass(slots=True)
class Call:
    """One script run: where its answer goes, and how its arguments are made when it is sent."""

    script: Script
    arguments: Callable[[str], dict[str, str | int | bytes]]
    """Given the epoch that this replica knows when the call is sent."""
    building: bool = False
    """Runs on the keys beside the books."""
    guarded: bool = True
    """False for what must run while no books are built: lease and build."""
    on_answer: Callable[[list[Any]], None] | None = None
    """Run before anything newer is sent."""
    done: asyncio.Future[list[Any]] = field(default_factory=lambda: _loop().create_future())
    is_queued: bool = False
    is_sent: bool = False
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Guard:
    """What the guard said last: which books these are."""

    state: str
    """SETTLED, SUSPECT or UNBUILT."""
    epoch: str
    version: int
    settle_ms: int


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
    ) -> None:
        self._connector, self._keys, self._scripts = connector, keys, scripts
        self.watch_replid, self._most = watch_replid, journal_length
        self._budget = call_budget.total_seconds()
        self._client: Redis | None = None
        self._queue: list[Call] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._redis_us, self._heard_at = 0, 0.0
        self._last_stamp = 0
        self.guard: Guard | None = None

    def start(self) -> None:
        """Begin sending."""
        self._task = asyncio.create_task(self._run(), name="ledger pipeline")

    async def close(self) -> None:
        """Stop sending; what is still waiting ends as LedgerUnavailable."""
        self._is_closing = True
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail(self._queue, LedgerUnavailable("the ledger is closed"))
        self._queue = []
        await self._connector.close()

    def stamp(self) -> int:
        """Redis' time now in microseconds, reckoned from its last answer; never later than the
        truth, never the same twice. LedgerUnavailable before the first answer.
        """
        self._last_stamp = max(self._last_stamp + 1, self.redis_us())
        return self._last_stamp

    def redis_us(self) -> int:
        """Redis' time now in microseconds, as `stamp` reckons it."""
        if not self._redis_us:
            raise LedgerUnavailable("Redis has not answered yet")
        return self._redis_us + int((time.monotonic() - self._heard_at) * 1_000_000)

    def script(self, name: str) -> Script:
        """The script of that name."""
        return self._scripts[name]

    async def run(self, call: Call) -> list[Any]:
        """Send the call with whatever else is waiting; its answer, word first as str.

        A call may be waited for by several tasks; it is sent once.
        LedgerUnavailable where no answer came in time or no books are built.
        """
        if not call.is_queued:
            call.is_queued = True
            self._queue.append(call)
            self._wake.set()
        try:
            async with asyncio.timeout(self._budget):
                return await asyncio.shield(call.done)
        except TimeoutError:
            late = LedgerUnavailable("Redis gave no answer in time", may_have_applied=call.is_sent)
            if not call.is_sent and not call.done.done():
                _end(call, late)  # what was given up before it was sent never is
            raise late from None

    async def _run(self) -> None:
        # Not "while True": redis-py may turn the cancellation that ends this into another error.
        while not self._is_closing:
            await self._wake.wait()
            batch, self._queue = self._queue[:MAX_BATCH], self._queue[MAX_BATCH:]
            if not self._queue:
                self._wake.clear()
            batch = [call for call in batch if not call.done.done()]
            if batch:
                await self._send(batch)

    async def _send(self, batch: list[Call]) -> None:
        try:
            await self._send_until_decided(batch)
        except LedgerUnavailable as error:
            self._fail(batch, error)
        except asyncio.CancelledError:
            self._fail(batch, LedgerUnavailable("the ledger is closed", may_have_applied=True))
            raise
        except Exception as error:  # noqa: BLE001 - the loop outlives a bug; each caller is told
            self._fail(batch, ScriptContractError(f"pipeline: {error!r}"))

    async def _send_until_decided(self, batch: list[Call]) -> None:
        if self.guard is None:
            await self._exchange([])
        waiting = batch
        while waiting:
            waiting = [call for call in waiting if not call.done.done()]
            answers = await self._exchange(waiting)
            waiting = [
                call
                for call, answer in zip(waiting, answers, strict=True)
                if not self._settle(call, answer)
            ]

    def _settle(self, call: Call, answer: Any) -> bool:
        """Hand the answer on; False where the call must be decided anew under a new epoch."""
        guard = self.guard
        if call.done.done():
            return True
        if isinstance(answer, Exception):
            return _end(call, _as_ours(call, answer))
        if call.guarded and guard and guard.state == "UNBUILT":
            return _end(call, LedgerUnavailable("the ledger is not built"))
        word = answer[0].decode()
        if word not in call.script.words:
            return _end(call, ScriptContractError(f"{call.script.name}: answered {word}"))
        if word == "EPOCH" and call.guarded:
            call.refused += 1
            if call.refused <= EPOCH_RETRIES:
                return False
            return _end(call, LedgerUnavailable("the ledger keeps beginning new epochs"))
        answer = [word, *answer[1:]]
        if call.on_answer:
            call.on_answer(answer)
        call.done.set_result(answer)
        return True

    async def _exchange(self, calls: Sequence[Call]) -> list[Any]:
        """One round trip, with one retry where the connection was lost or scripts were flushed."""
        for is_last in (False, True):
            try:
                return await self._round_trip(calls)
            except Exception as error:
                if not is_lost_connection(error):
                    raise
                await self._forget_connection()
                if is_last:
                    raise LedgerUnavailable(
                        f"Redis cannot be reached: {error}", may_have_applied=bool(calls)
                    ) from error
        raise AssertionError("unreachable")

    async def _round_trip(self, calls: Sequence[Call]) -> list[Any]:
        client = self._client or await self._connect()
        pending = dict(enumerate(calls))
        answers: list[Any] = [None] * len(calls)
        for _ in range(2):
            results = await self._execute(client, list(pending.values()))
            missing: dict[int, Call] = {}
            for (index, call), result in zip(list(pending.items()), results, strict=True):
                answers[index] = result
                if isinstance(result, NoScriptError):
                    missing[index] = call
            if not missing:
                break
            await self._load_scripts(client)
            pending = missing
        return answers

    async def _execute(self, client: Redis, calls: Sequence[Call]) -> list[Any]:
        """The guard, then each call. The guard goes as text, so that a server without our scripts
        cannot skip it and then find the others loaded by somebody else.
        """
        guard = self._scripts["check_ledger"]
        pipe = client.pipeline(transaction=False)
        guard_keys = self._keys.keys(guard.key_names)
        given: dict[str, str | int | bytes] = {
            "new_epoch": secrets.token_hex(6),
            "watch": int(self.watch_replid),
            "most": self._most,
        }
        pipe.eval(guard.text, len(guard_keys), *guard_keys, *guard.arguments(given))
        epoch = self.guard.epoch if self.guard else ""
        for call in calls:
            call.is_sent = True
            keys = self._keys.keys(call.script.key_names, building=call.building)
            arguments = call.script.arguments(call.arguments(epoch))
            pipe.evalsha(call.script.sha, len(keys), *keys, *arguments)
        answers = await pipe.execute(raise_on_error=False)
        heard_at = time.monotonic()
        for answer in answers:
            if isinstance(answer, Exception) and is_lost_connection(answer):
                raise answer
        if isinstance(answers[0], Exception):
            raise _as_ours(None, answers[0])
        self._hear(answers[0], heard_at)
        return answers[1:]

    def _hear(self, answer: list[Any], heard_at: float) -> None:
        self._redis_us, self._heard_at = int(answer[1]), heard_at
        self.guard = Guard(answer[0].decode(), answer[2].decode(), answer[3], answer[4])

    async def _connect(self) -> Redis:
        client = await self._connector.connect()
        await self._load_scripts(client)
        self._client = client
        return client

    async def _load_scripts(self, client: Redis) -> None:
        pipe = client.pipeline(transaction=False)
        for script in self._scripts.values():
            pipe.script_load(script.text)
        try:
            await pipe.execute()
        except ResponseError as error:
            if is_lost_connection(error):
                raise
            raise LedgerUnavailable(f"Redis loads no scripts: {error}") from error

    async def _forget_connection(self) -> None:
        """The next round trip asks for the primary again, over new connections."""
        client, self._client = self._client, None
        if client:
            await client.connection_pool.disconnect()

    @staticmethod
    def _fail(calls: Sequence[Call], error: Exception) -> None:
        for call in calls:
            if not call.done.done():
                _end(call, error)


def _end(call: Call, error: Exception) -> bool:
    call.done.set_exception(error)
    call.done.exception()  # a caller that went away leaves no unhandled error behind
    return True


def _as_ours(call: Call | None, error: Exception) -> Exception:
    """What a caller sees of an error that Redis answered for one script."""
    name = call.script.name if call else "check_ledger"
    text = str(error)
    if isinstance(error, ResponseError) and text.removeprefix("ERR ").startswith("user_script"):
        return ScriptContractError(f"{name}: {text}")
    return LedgerUnavailable(f"Redis refused {name}: {text}")


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
