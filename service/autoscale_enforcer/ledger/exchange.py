"""One round trip to Redis: the guard, the scripts, and the wait for what is to be told.

Retried once where the connection was lost. Knows what an answer means for the books as a whole
(which they are, how safe they are), nothing of what the scripts mean.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from autoscale_enforcer.errors import LedgerUnavailable, LedgerUnfit, ScriptContractError
from autoscale_enforcer.ledger.call import Call
from autoscale_enforcer.ledger.connection import Connector
from autoscale_enforcer.ledger.durability import Waiting
from autoscale_enforcer.ledger.faults import is_lost_connection, why
from autoscale_enforcer.ledger.fitness import Finding, findings
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.link import Link, Wire
from autoscale_enforcer.ledger.packing import Packer, Value, pack_command
from autoscale_enforcer.ledger.schema import SCHEMA, mismatch
from autoscale_enforcer.ledger.scripts import Script
from autoscale_enforcer.ledger.told import Loss, Noticed, Told

log = logging.getLogger(__name__)

DOUBT_EVERY = 1.0
"""Seconds between looks for another primary while this one's replicas do not answer."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What the guard said last: which books these are."""

    state: str
    """SETTLED, SUSPECT or UNBUILT; NEWER or OLDER where another release wrote the rows."""
    epoch: str
    version: int
    """Of NEWER and OLDER the schema."""
    settle_ms: int
    replid: str = ""
    """Of the server: its name for the history that it writes. Empty while unbuilt."""

    @property
    def why_not(self) -> str:
        """Why nothing may be asked of these books by this release; empty where it may."""
        return mismatch(self.version) if self.state in ("NEWER", "OLDER") else ""


Take = Callable[[Call, Any], object]
"""Hands an answer on at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeSettings:
    """What goes with every round trip."""

    watch_replid: bool = True
    """False where the server has neither INFO nor ROLE."""
    journal_length: int
    waiting: Waiting
    checks_server: bool = False
    """Look at how each server is set up that is found, and refuse one that would lose things."""


class Exchange:
    """Round trips, one at a time."""

    def __init__(
        self,
        connector: Connector,
        keys: Keys,
        scripts: dict[str, Script],
        settings: ExchangeSettings,
    ) -> None:
        self._keys, self._scripts, self._settings = keys, scripts, settings
        self._packer = Packer(keys)
        wait = settings.waiting.command
        self._tail = [pack_command(each) for each in (("ROLE",), wait) if each]
        self._link = Link(connector, self._prepare)
        self._told: Told | None = None
        self._telling: Told | None = None
        """What the round trip in flight will have told."""
        self._epoch = ""
        self._findings: list[Finding] = []
        self._is_doubtful, self._doubted_at = False, -DOUBT_EVERY
        self.guard: Guard | None = None
        self.noticed = Noticed()
        self.redis_us, self.heard_at = 0, 0.0
        """Redis' clock in its last answer, and ours then."""
        self.on_loss: Callable[[Told, Loss], None] | None = None
        """Called on another primary that lacks what we told, or may."""

    async def close(self) -> None:
        """End every connection."""
        await self._link.close()

    async def run(self, calls: list[Call], take: Take) -> list[Any]:
        """The answers, errors among them; what need not wait is handed to `take` before, and its
        place may hold None. Raises LedgerUnavailable where there are none.
        """
        for is_last in (False, True):
            waiting = [call for call in calls if not call.is_done]
            try:
                answers = await self._round_trip(waiting, take)
            except Exception as error:
                if not is_lost_connection(error):
                    raise
                await self._link.forget()
                for call in waiting:
                    call.may_come_late = call.is_sent
                if is_last:
                    raise LedgerUnavailable(f"Redis cannot be reached: {why(error)}") from error
            else:
                await self._doubt()
                found = {id(call): answer for call, answer in zip(waiting, answers, strict=True)}
                return [found.get(id(call)) for call in calls]
        raise AssertionError("unreachable")

    async def _round_trip(self, calls: list[Call], take: Take) -> list[Any]:
        """Twice, where scripts were flushed."""
        self._telling = None
        async with await self._link.wire() as wire:
            answers = await self._execute(wire, calls, take)
            missing = [i for i, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            if missing:
                await self._load_scripts(wire)
                found = await self._execute(wire, [calls[i] for i in missing], take)
                for index, answer in zip(missing, found, strict=True):
                    answers[index] = answer
            await self._look_back(wire)
        self._note_told()
        return answers

    def _note_told(self) -> None:
        self._told = self._telling or self._told

    async def _execute(self, wire: Wire, calls: Sequence[Call], take: Take) -> list[Any]:
        tells = self._settings.watch_replid and any(call.tells for call in calls)
        tail = self._tail if tells else []
        await wire.send([self._guard(mark=len(tail) > 1), *self._scripts_of(calls), *tail])
        guard, *answers = await wire.read(1 + len(calls))
        if not isinstance(guard, Exception):
            self._hear(guard, time.monotonic())
            for call, answer in zip(calls, answers, strict=True):
                if not (call.tells or isinstance(answer, Exception)):
                    take(call, answer)
        after = await wire.read(len(tail))
        if isinstance(guard, Exception):
            raise as_ours("check_ledger", guard)
        return self._after_waiting(calls, answers, after) if tail else answers

    def _guard(self, *, mark: bool) -> bytes:
        """As text, so that a server without our scripts cannot skip it and then find the others
        loaded by somebody else.
        """
        guard = self._scripts["check_ledger"]
        keys = self._keys.keys(guard.key_names)
        given: dict[str, Value] = {
            "new_epoch": secrets.token_hex(6),
            "watch": int(self._settings.watch_replid),
            "most": self._settings.journal_length,
            "mark": int(mark),
            "schema": SCHEMA,
        }
        return pack_command(("EVAL", guard.text, len(keys), *keys, *guard.arguments(given)))

    def _scripts_of(self, calls: Sequence[Call]) -> Iterator[bytes]:
        epoch = self.guard.epoch if self.guard else ""
        for call in calls:
            call.is_sent = True
            arguments = call.script.arguments(call.arguments(epoch))
            yield self._packer.run(call.script, arguments, building=call.building)

    def _after_waiting(
        self, calls: Sequence[Call], answers: list[Any], after: Sequence[Any]
    ) -> list[Any]:
        """The answers, with an error in the place of each that may not be told."""
        role, *waited = after
        for answer in waited:
            is_refused = isinstance(answer, Exception)
            problem = str(answer) if is_refused else self._settings.waiting.missing(answer)
            if problem:
                self.noticed.unwaited += 1
                self._is_doubtful = True
                error = LedgerUnavailable(f"not safe yet: {problem}")
                return [
                    error if call.tells and not isinstance(answer, Exception) else answer
                    for call, answer in zip(calls, answers, strict=True)
                ]
        if self.guard and self.guard.replid and not isinstance(role, Exception):
            self._telling = Told(self.guard.replid, int(role[1]))
        return answers

    async def _doubt(self) -> None:
        """A primary that lost its replicas may have been replaced: ask again, once in a while."""
        now = time.monotonic()
        if self._is_doubtful and now - self._doubted_at >= DOUBT_EVERY:
            self._doubted_at = now
            await self._link.forget()
        self._is_doubtful = False

    async def _look_back(self, wire: Wire) -> None:
        """On another primary: does it have what we told?"""
        told = self._told
        if not told or not self.guard or self.guard.replid in ("", told.replid):
            return
        (info,) = await wire.ask(("INFO", "replication"))
        loss = Loss.UNCLEAR if isinstance(info, Exception) else told.became(info.decode())
        self._told = None
        self.noticed.count(loss)
        level = logging.INFO if loss is Loss.KEPT else logging.ERROR
        log.log(level, "another Redis primary: %s (%s)", loss.words, told.place)
        if self.on_loss and loss is not Loss.KEPT:
            self.on_loss(told, loss)

    def _hear(self, answer: list[Any], heard_at: float) -> None:
        self.redis_us, self.heard_at = int(answer[1]), heard_at
        state, epoch, replid = (answer[index].decode() for index in (0, 2, 5))
        if epoch and self._epoch and epoch != self._epoch:
            self.noticed.epochs += 1
        self._epoch = epoch or self._epoch
        self.guard = Guard(state, epoch, answer[3], answer[4], replid)

    async def _prepare(self, wire: Wire) -> None:
        self.noticed.connects += 1
        if self._settings.checks_server:
            await self._check(wire)
        await self._load_scripts(wire)

    async def _check(self, wire: Wire) -> None:
        found = await findings(wire, self._settings.waiting.durability)
        if found != self._findings:
            self._findings = found
            for each in found:
                log.log(
                    logging.ERROR if each.is_refused else logging.WARNING, "Redis: %s", each.words
                )
        if refused := [each.words for each in found if each.is_refused]:
            raise LedgerUnfit(refused)

    async def _load_scripts(self, wire: Wire) -> None:
        loads = [("SCRIPT", "LOAD", script.text) for script in self._scripts.values()]
        for answer in await wire.ask(*loads):
            if isinstance(answer, Exception):
                raise LedgerUnavailable(f"Redis loads no scripts: {answer}") from answer


def as_ours(script: str, error: Exception) -> Exception:
    """What a caller sees of an error that Redis answered for one script."""
    if isinstance(error, LedgerUnavailable):
        return error
    text = str(error)
    if isinstance(error, ResponseError) and text.removeprefix("ERR ").startswith("user_script"):
        return ScriptContractError(f"{script}: {text}")
    return LedgerUnavailable(f"Redis refused {script}: {text}")
