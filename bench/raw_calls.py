"""Script calls as the ledger makes them, caught before they are sent, for a client that sends
nothing else: Redis itself, without our pipeline in front of it.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import redis
from redis.client import Pipeline as RedisPipeline

from autoscale_enforcer.ledger.call import Call
from autoscale_enforcer.ledger.calls import LedgerSettings
from autoscale_enforcer.ledger.connection import ConnectionSettings, connector
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.pipeline import Pipeline
from autoscale_enforcer.ledger.scripts import load_scripts

if sys.version_info >= (3, 12):
    from typing import override
else:
    from typing_extensions import override


@dataclass(frozen=True, slots=True)
class RawCall:
    """One EVALSHA."""

    sha: str
    keys: tuple[str, ...]
    arguments: tuple[str | int | bytes, ...]

    def put_into(self, pipe: RedisPipeline) -> None:
        """The next of that pipeline."""
        pipe.execute_command(  # type: ignore[no-untyped-call]
            "EVALSHA", self.sha, len(self.keys), *self.keys, *self.arguments
        )


class _Caught(Exception):
    def __init__(self, call: RawCall) -> None:
        super().__init__(call.sha)
        self.call = call


class _Catching(Pipeline):
    """Sends what it is given, unless it catches."""

    catches = False
    all_keys: Keys

    @override
    async def run(self, call: Call) -> list[Any]:
        if not self.catches:
            return await super().run(call)
        epoch = self.guard.epoch if self.guard else ""
        arguments = call.script.arguments(call.arguments(epoch))
        keys = self.all_keys.keys(call.script.key_names)
        raise _Caught(RawCall(call.script.sha, tuple(keys), tuple(arguments)))


@dataclass(frozen=True, slots=True)
class CatchingLedger:
    """A ledger whose calls can be caught."""

    ledger: Ledger
    _pipeline: _Catching

    @classmethod
    def open(cls, url: str) -> CatchingLedger:
        """Over the Redis at that URL."""
        settings = LedgerSettings(
            connection=ConnectionSettings(url=url, socket_timeout=30),
            settle_after=timedelta(0),  # no agents, whom a node would wait for
            call_budget=timedelta(minutes=1),
        )
        keys = Keys(settings.cluster)
        pipeline = _Catching(
            connector(settings.connection, slot_key=keys.key("nodes")),
            keys,
            load_scripts(),
            journal_length=settings.journal_length,
            call_budget=settings.call_budget,
        )
        pipeline.all_keys = keys
        pipeline.start()
        return cls(Ledger(settings, pipeline), pipeline)

    async def catch(self, asked: Awaitable[Any]) -> RawCall:
        """The first script that this would run, in its place."""
        self._pipeline.catches = True
        try:
            await asked
        except _Caught as caught:
            return caught.call
        finally:
            self._pipeline.catches = False
        raise ValueError("it ran no script")


def run_all(client: redis.Redis, calls: list[RawCall]) -> list[Any]:
    """Their answers, from one round trip."""
    pipe = client.pipeline(transaction=False)
    for call in calls:
        call.put_into(pipe)
    return list(pipe.execute())
