"""The connection to the primary: found when it is needed, forgotten when it was the wrong one.

What goes over one connection is carried out in order, and only there can Redis be asked to wait
for what was written before.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as NoAnswer

from autoscale_enforcer.ledger.connection import Connector
from autoscale_enforcer.ledger.faults import is_lost_connection
from autoscale_enforcer.ledger.packing import Command, pack_command


class Wire:
    """`async with wire:` one connection for a while; every answer must be read within it.

    After an error within the block the connection is a new one the next time.
    """

    def __init__(self, pool: ConnectionPool, connection: Any) -> None:
        self._pool, self._connection = pool, connection

    @classmethod
    async def of(cls, pool: ConnectionPool) -> Self:
        """One of the pool's connections, kept until `give_back`."""
        return cls(pool, await pool.get_connection())  # type: ignore[no-untyped-call]

    async def give_back(self) -> None:
        """End every connection of the pool, this one too."""
        await self._pool.disconnect()
        await self._pool.release(self._connection)

    async def __aenter__(self) -> Self:
        await self._pool.ensure_connection(self._connection)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind:
            # Answers may be left on it, which the next one would take for its own.
            await self._connection.disconnect(nowait=True)

    async def send(self, commands: Sequence[bytes]) -> None:
        """All of them at once; as many answers are to be read."""
        # No health check: it would ask a question of its own.
        await self._connection.send_packed_command(commands, check_health=False)

    async def read(self, count: int) -> list[Any]:
        """So many answers; a refusal is an answer. Raises where this server is not the one."""
        within = self._connection.socket_timeout
        try:
            # One limit for all of them: Redis hands over at once what it has carried out at once.
            async with asyncio.timeout(within):
                return [await self._next() for _ in range(count)]
        except TimeoutError:
            raise NoAnswer(f"no answer within {within} s") from None

    async def _next(self) -> Any:
        try:
            # Without a limit of its own, which would set a timer for each answer.
            answer = await self._connection.read_response(timeout=math.inf)
        except ResponseError as error:
            if is_lost_connection(error):
                raise
            return error
        if answer is None:  # redis-py's word for a connection that timed out
            raise LostConnection("the connection timed out")
        return answer

    async def ask(self, *commands: Command) -> list[Any]:
        """The answers to all of them."""
        await self.send([pack_command(each) for each in commands])
        return await self.read(len(commands))


Prepare = Callable[[Wire], Awaitable[None]]
"""What is done once on each server that was found, before anything else."""


class Link:
    """The way to the primary. One user at a time."""

    def __init__(self, connector: Connector, prepare: Prepare) -> None:
        self._connector, self._prepare = connector, prepare
        self._wire: Wire | None = None

    async def wire(self) -> Wire:
        """A connection to the primary."""
        if self._wire is None:
            client = await self._connector.connect()
            wire = await Wire.of(client.connection_pool)
            try:
                async with wire:
                    await self._prepare(wire)
            except BaseException:
                await wire.give_back()
                raise
            self._wire = wire
        return self._wire

    async def forget(self) -> None:
        """The next one asks for the primary again, over new connections."""
        wire, self._wire = self._wire, None
        if wire:
            await wire.give_back()

    async def close(self) -> None:
        """End every connection."""
        self._wire = None
        await self._connector.close()
