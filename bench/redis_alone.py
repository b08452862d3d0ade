"""How many of the agents' requests Redis itself answers, when nothing else is asked of anybody."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from itertools import cycle
from typing import Self

from tests.support.servers import Server

from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.ids import PodName
from autoscale_enforcer.model.resources import Resources
from bench.cluster import Size, vm_pod_name
from bench.figures import WrongAnswer
from bench.judge import books_of
from bench.ledgers import build
from bench.raw_calls import CatchingLedger, RawCall, run_all

BATCH = 32
UNIT = Resources(250, 1 << 30)


class RedisAlone:
    """A ledger of that size on a Redis of its own, and requests ready to be sent to it."""

    def __init__(self, server: Server, size: Size) -> None:
        self._server, self._size = server, size
        self._stack = ExitStack()
        self._client = self._stack.enter_context(server.client())
        self._calls: list[RawCall] = []

    def __enter__(self) -> Self:
        self._calls = asyncio.run(self._prepare())
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def rates(self, seconds: float) -> list[float]:
        """Answers a second, as the one value of a measure."""
        batches = cycle(range(0, len(self._calls), BATCH))
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            start = next(batches)
            answers = run_all(self._client, self._calls[start : start + BATCH])
            if wrong := [each for each in answers if each[0] != b"PERMIT"]:
                raise WrongAnswer(f"Redis alone: {wrong[0]}")
            done += len(answers)
        return [done / (time.perf_counter() - began)]

    def verify(self) -> None:
        """Raise WrongAnswer where the ledger does not add up."""
        books_of(self._server.tcp_url)

    async def _prepare(self) -> list[RawCall]:
        caught = CatchingLedger.open(self._server.tcp_url)
        try:
            await build(caught.ledger, self._size)
            return [
                await caught.catch(self._request(caught.ledger, number, units))
                for units in (3, 2)
                for number in range(self._size.vms)
            ]
        finally:
            await caught.ledger.close()

    async def _request(self, ledger: Ledger, number: int, units: int) -> None:
        await ledger.request_permit(
            PodName(f"default/{vm_pod_name(number)}"),
            asked=Resources(units * UNIT.cpu, units * UNIT.mem),
            factor=UNIT,
            last_permit=None,
            # The same in all: these calls are sent again and again, and none may be late.
            stamp=1,
            context={"replica": "r1", "verb": "agent"},
        )
