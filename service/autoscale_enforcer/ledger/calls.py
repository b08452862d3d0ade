"""How every method of the ledger sends its script; the methods are in modules by subject.

Private to the package, but for the settings, the context and the proof of leadership.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgpack

from autoscale_enforcer.ledger.call import Call
from autoscale_enforcer.ledger.connection import ConnectionSettings
from autoscale_enforcer.ledger.durability import Waiting
from autoscale_enforcer.ledger.exchange import Guard
from autoscale_enforcer.ledger.mirror import Mirror
from autoscale_enforcer.ledger.outcomes import DENIALS
from autoscale_enforcer.ledger.pipeline import Pipeline

Context = dict[str, str]
"""Who asked and why, for the journal: a few short words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    """How the ledger is kept."""

    connection: ConnectionSettings
    waiting: Waiting = field(default_factory=Waiting)
    """How safe a change must be before it is told."""
    checks_server: bool = True
    """Refuse a Redis that is set up so that it would lose what it is told."""
    cluster: str = "default"
    """Hash tag of the keys: one ledger for each Kubernetes cluster."""
    hold_lifetime: timedelta = timedelta(seconds=30)
    """How long a tentative hold stands before the sweep looks; exceeds the slowest bind."""
    journal_length: int = 100_000
    """Entries kept, about; some 15 MB of Redis' memory."""
    call_budget: timedelta = timedelta(seconds=2)
    """Longest wait for one answer: below half of kube-scheduler's `httpTimeout`."""
    keeps_whole_facts: bool = False
    """Beside each pod's row its whole fact: with a file source the ledger is the copy of the
    cluster that replicas share, those of the first release too."""
    settle_after: timedelta = timedelta(seconds=15)
    """Agents' longest period: how long nodes with VMs wait for them after a loss."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """Proof that this replica leads: facts carry the token, and are refused once it is stale."""

    token: str
    build_epoch: str = ""
    """Set while a build is under way: facts go to the keys beside the books."""


Answer = Coroutine[Any, Any, list[Any]]
"""Of a script, word first as str, once it is awaited."""


class Calls:
    """What the methods share."""

    def __init__(self, settings: LedgerSettings, pipeline: Pipeline) -> None:
        self.settings = settings
        self.pipeline = pipeline
        self.mirror = Mirror(pipeline)

    async def stamp(self) -> int:
        """The stamp for a call that has just reached us; pass it to each attempt of that call."""
        if self.pipeline.guard is None:
            await self.look()
        return self.pipeline.stamp()

    async def look(self, *, as_a_promise: bool = False) -> Guard:
        """What books there are: one round trip, whatever their state.

        `as_a_promise`: LedgerUnavailable also where a grant made now could not be told.
        """
        await self._send(
            "find_lapsed", {"limit": 1}, guarded=False, any_schema=True, tells=as_a_promise
        )
        guard = self.pipeline.guard
        if guard is None:
            raise AssertionError("a round trip always brings the guard's answer")
        return guard

    def _change(
        self, script: str, context: Context | None, **arguments: str | int | bytes
    ) -> Answer:
        arguments |= {"most": self.settings.journal_length, "context": pack(context or {})}
        return self._send(script, arguments, with_epoch=True)

    def _promise(
        self, script: str, context: Context | None, **arguments: str | int | bytes
    ) -> Answer:
        """A change whose answer somebody relies on: told once it is as safe as was asked for."""
        arguments |= {"most": self.settings.journal_length, "context": pack(context or {})}
        return self._send(script, arguments, with_epoch=True, tells=True)

    async def _fact(
        self,
        script: str,
        leader: Leadership | None,
        context: Context | None,
        **arguments: str | int | bytes,
    ) -> list[Any]:
        if leader and leader.build_epoch:
            arguments |= {"epoch": leader.build_epoch, "token": leader.token, "context": b""}
            arguments["most"] = self.settings.journal_length
            word, *rest = await self._send(script, arguments, guarded=False, building=True)
            # Another epoch beside the books: another builder has begun.
            return ["FENCED" if word == "EPOCH" else word, *rest]
        return await self._change(
            script, context, token=leader.token if leader else "", **arguments
        )

    def _run(self, script: str, **arguments: str | int | bytes) -> Answer:
        return self._send(script, arguments)

    def _run_unguarded(self, script: str, **arguments: str | int | bytes) -> Answer:
        return self._send(script, arguments, guarded=False)

    def _send(
        self,
        script: str,
        arguments: dict[str, str | int | bytes],
        *,
        guarded: bool = True,
        building: bool = False,
        with_epoch: bool = False,
        tells: bool = False,
        any_schema: bool = False,
    ) -> Answer:
        def at_send(epoch: str) -> dict[str, str | int | bytes]:
            return {**arguments, "epoch": epoch} if with_epoch else arguments

        return self.pipeline.run(
            Call(
                self.pipeline.script(script),
                at_send,
                building=building,
                guarded=guarded,
                tells=tells,
                any_schema=any_schema,
                denials=DENIALS.get(script, frozenset()),
            )
        )


def pack(value: Any) -> bytes:
    """The value as msgpack."""
    packed: bytes = _PACKER.pack(value)
    return packed


_PACKER = msgpack.Packer()
"""One for all: making one costs more than most values do."""
