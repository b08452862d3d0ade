"""Carries facts to the ledger: the newest of each object, many at once, again until they are in.

Facts of one object go in their order; what is not in the ledger yet is remembered by object, so
that a storm of events costs no more than the objects it is about.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from itertools import islice

from autoscale_enforcer.cluster.upkeep import LostLead
from autoscale_enforcer.errors import LedgerUnavailable, ScriptContractError
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.outcomes import Fact

log = logging.getLogger(__name__)

Put = Callable[[Leadership], Awaitable[Fact]]
"""Books one fact under the leadership that is given."""

BATCH = 32
"""Facts under way at once: they take this process some 5 ms, in which it answers nobody."""

RETRY_AFTER = 0.2
"""Seconds after which facts that the ledger could not take are put again."""

WAITS_FOR_OTHERS = 0.02
"""Seconds that a fact waits at most which may wait for others: a round trip with one fact costs
this process and Redis three times what the fact does."""


class FactPump:
    """What the watches have said and the ledger has not heard."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, Put] = {}
        self._wake = asyncio.Event()
        self._waking: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.dropped = 0
        """Facts that the ledger's scripts could not take."""

    def put(self, key: Hashable, put: Put, *, may_wait: bool = False) -> None:
        """Remember the newest fact of an object; an older one that still waits is forgotten.

        With `may_wait` it goes with the next that may not, or in a moment.
        """
        self._waiting[key] = put
        self._idle.clear()
        if not may_wait:
            self._wake.set()
        elif self._waking is None:
            loop = asyncio.get_running_loop()
            self._waking = loop.call_later(WAITS_FOR_OTHERS, self._wake.set)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    async def drained(self) -> None:
        """Wait until the ledger has heard everything."""
        await self._idle.wait()

    async def run(self, leader: Leadership) -> None:
        """Carry until cancelled; raises LostLead where another replica leads."""
        while True:
            await self._wake.wait()
            try:
                await self.flush(leader)
            except LedgerUnavailable as error:
                log.debug("facts wait: %s", error)
                await asyncio.sleep(RETRY_AFTER)

    async def flush(self, leader: Leadership) -> None:
        """Carry what waits now and what comes meanwhile; what fails goes on waiting."""
        while self._waiting:
            batch = dict(islice(self._waiting.items(), BATCH))
            answers = await asyncio.gather(
                *(put(leader) for put in batch.values()), return_exceptions=True
            )
            away = None
            for (key, put), answer in zip(batch.items(), answers, strict=True):
                if isinstance(answer, LedgerUnavailable):
                    away = answer
                else:
                    self._has_heard(key, put, answer)
            if away:
                raise away
        if self._waking:
            self._waking.cancel()
            self._waking = None
        self._wake.clear()
        self._idle.set()

    def _has_heard(self, key: Hashable, put: Put, answer: Fact | BaseException) -> None:
        """The ledger has answered: unless there is newer, nothing more is to be told."""
        if answer is Fact.FENCED:
            raise LostLead
        if isinstance(answer, ScriptContractError):
            # One that can never be booked must not keep the others out.
            self.dropped += 1
            log.error("%s is not booked: %s", key, answer)
        elif isinstance(answer, BaseException):
            raise answer
        if self._waiting.get(key) is put:
            del self._waiting[key]
