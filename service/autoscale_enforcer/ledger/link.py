"""The connection to the primary: found when it is needed, forgotten when it was the wrong one.

What goes over one connection is carried out in order, and only there can Redis be asked to wait
for what was written before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from autoscale_enforcer.ledger.connection import Connector
from autoscale_enforcer.ledger.faults import is_lost_connection

Command = tuple[str | bytes | int, ...]


class Wire:
    """One connection for a while: every answer must be read before it is given back."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def send(self, commands: Sequence[Command]) -> None:
        """All of them at once; as many answers are to be read."""
        packed = self._connection.pack_commands(commands)
        # No health check: it would ask a question of its own.
        await self._connection.send_packed_command(packed, check_health=False)

    async def read(self) -> Any:
        """The next answer; a refusal is an answer. Raises where this server is not the one."""
        try:
            return await self._connection.read_response()
        except ResponseError as error:
            if is_lost_connection(error):
                raise
            return error

    async def ask(self, *commands: Command) -> list[Any]:
        """The answers to all of them."""
        await self.send(commands)
        return [await self.read() for _ in commands]


Prepare = Callable[[Wire], Awaitable[None]]
"""What is done once on each server that was found, before anything else."""


class Link:
    """The way to the primary. One user at a time."""

    def __init__(self, connector: Connector, prepare: Prepare) -> None:
        self._connector, self._prepare = connector, prepare
        self._client: Redis | None = None

    @asynccontextmanager
    async def wire(self) -> AsyncIterator[Wire]:
        """A connection to the primary. After an error within the block nobody has it again."""
        client = self._client
        if client is None:
            client = await self._connector.connect()
            async with _borrowed(client) as wire:
                await self._prepare(wire)
            self._client = client
        async with _borrowed(client) as wire:
            yield wire

    async def forget(self) -> None:
        """The next one asks for the primary again, over new connections."""
        client, self._client = self._client, None
        if client:
            await client.connection_pool.disconnect()

    async def close(self) -> None:
        """End every connection."""
        self._client = None
        await self._connector.close()


@asynccontextmanager
async def _borrowed(client: Redis) -> AsyncIterator[Wire]:
    pool = client.connection_pool
    connection = await pool.get_connection()  # type: ignore[no-untyped-call]
    try:
        yield Wire(connection)
    except BaseException:
        # Answers may be left on it, which the next one would take for its own.
        await connection.disconnect(nowait=True)
        raise
    finally:
        await pool.release(connection)
