"""The primary that Sentinels name, as most of them see it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.client import Maker
from autoscale_enforcer.ledger.faults import why

DOWN = {"s_down", "o_down"}


@dataclass(frozen=True, slots=True, order=True)
class Named:
    """What one Sentinel says of the primary."""

    config_epoch: int
    """Rises with every failover: a Sentinel that was cut off has an older one."""
    is_up: bool
    """As this Sentinel sees it; one that may be down is tried all the same."""
    address: tuple[str, int]


class ViaSentinel:
    """Asks every Sentinel at once; the newest word of a majority counts, or of all that answer."""

    def __init__(
        self, hosts: list[tuple[str, int]], name: str, maker: Maker, *, database: int
    ) -> None:
        self._sentinels = [maker.sentinel_client(host, port) for host, port in hosts]
        self._name, self._maker, self._database = name, maker, database
        self._found: tuple[tuple[str, int], Redis] | None = None

    async def connect(self) -> Redis:
        """A client of the primary; LedgerUnavailable where none is named."""
        address = await self._named()
        if self._found and self._found[0] == address:
            await self._found[1].connection_pool.disconnect(inuse_connections=False)
            return self._found[1]
        if self._found:
            await self._found[1].aclose()
        host, port = address
        client = self._maker.client(host=host, port=port, db=self._database)
        self._found = (address, client)
        return client

    async def close(self) -> None:
        """End every connection."""
        if self._found:
            await self._found[1].aclose()
        for sentinel in self._sentinels:
            await sentinel.aclose()

    async def _named(self) -> tuple[str, int]:
        tasks = [asyncio.ensure_future(self._ask(sentinel)) for sentinel in self._sentinels]
        named: list[Named] = []
        problems: list[str] = []
        try:
            for task in asyncio.as_completed(tasks):
                answer = await task
                if isinstance(answer, Named):
                    named.append(answer)
                else:
                    problems.append(answer)
                if 2 * len(named) > len(tasks):
                    break
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not named:
            raise LedgerUnavailable(
                f"no Sentinel names a primary {self._name!r}: {problems[0] if problems else ''}"
            )
        return max(named).address

    async def _ask(self, sentinel: Redis) -> Named | str:
        try:
            answer: Any = await sentinel.execute_command(  # type: ignore[no-untyped-call]
                "SENTINEL", "MASTER", self._name
            )
        except (RedisError, OSError) as error:
            return why(error)
        found = _fields(answer)
        flags = set(found["flags"].split(","))
        return Named(
            config_epoch=int(found["config-epoch"]),
            is_up=not flags & DOWN,
            address=(found["ip"], int(found["port"])),
        )


def _fields(answer: Any) -> dict[str, str]:
    """A flat list of names and values, or what redis-py has made of one."""
    pairs = (
        answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
    )
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
