"""The server of a Redis Cluster that has the slot of the ledger's keys."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.client import Maker


class ViaCluster:
    """Asks the servers of the URL, then those that they named before, one after the other."""

    def __init__(self, seeds: list[tuple[str, int]], maker: Maker, *, slot_key: str) -> None:
        self._seeds, self._maker = seeds, maker
        self._slot = key_slot(slot_key.encode())
        self._known: list[tuple[str, int]] = []
        self._found: tuple[tuple[str, int], Redis] | None = None

    async def connect(self) -> Redis:
        """A client of the slot's owner; LedgerUnavailable where no server names one."""
        address = await self._owner()
        if self._found and self._found[0] == address:
            await self._found[1].connection_pool.disconnect(inuse_connections=False)
            return self._found[1]
        if self._found:
            await self._found[1].aclose()
        client = self._maker.client(host=address[0], port=address[1])
        self._found = (address, client)
        return client

    async def close(self) -> None:
        """End every connection."""
        if self._found:
            await self._found[1].aclose()

    async def _owner(self) -> tuple[str, int]:
        for host, port in dict.fromkeys([*self._seeds, *self._known]):
            client = self._maker.client(host=host, port=port)
            try:
                ranges: Any = await client.cluster("SLOTS")
            except (RedisError, OSError):
                continue
            finally:
                await client.aclose()
            if owner := self._owner_in(ranges, host):
                return owner
        raise LedgerUnavailable(f"no server of the Redis Cluster names an owner of {self._slot}")

    def _owner_in(self, ranges: Any, seed: str) -> tuple[str, int] | None:
        if isinstance(ranges, dict):  # redis-py parses the answer into {(first, last): {...}}
            found = [v["primary"] for (low, high), v in ranges.items() if low <= self._slot <= high]
            servers = [v["primary"] for v in ranges.values()]
        else:
            found = [r[2] for r in ranges if r[0] <= self._slot <= r[1]]
            servers = [r[2] for r in ranges]
        # Beyond the URL's, so that a cluster whose servers were all replaced is still found.
        self._known = [_address(server, seed) for server in servers]
        return _address(found[0], seed) if found else None


def _address(server: Any, seed: str) -> tuple[str, int]:
    host, port = server[0], int(server[1])
    host = host.decode() if isinstance(host, bytes) else host
    return host or seed, port
