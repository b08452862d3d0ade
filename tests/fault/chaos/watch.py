"""Watches the books while a campaign runs: each journal entry, each epoch."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import redis.asyncio

from autoscale_enforcer.ledger.journal import GRANTS, JournalEntry
from autoscale_enforcer.ledger.verify import Books
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.rows import NodeRow, PodRow
from tests.fault.kit.redis_group import UNREACHABLE, Member, RedisGroup
from tests.fault.kit.stage import KEYS

EVERY = 0.1
AT_ONCE = 5000


@dataclass(slots=True)
class Watcher:
    """`problems` has every grant over capacity, and every one on books that are not compared."""

    group: RedisGroup
    problems: list[str] = field(default_factory=list)
    entries: Counter[str] = field(default_factory=Counter)
    epochs: list[tuple[int, str]] = field(default_factory=list)
    """When each was first seen, in ns, and its name."""
    on_epoch: Callable[[int, bool], None] = lambda _since, _is_wiped: None
    """Called for each new life of the books, with the time (ns) at which the old one was last seen,
    and whether everything in them is gone.
    """
    losses: list[tuple[int, str]] = field(default_factory=list)
    """When a replica was seen to note that a new primary lacks what was told (`dropped`), or that
    nobody can say (`unclear`), in ns.
    """
    primaries: list[tuple[float, int]] = field(default_factory=list)
    """Since when Sentinels name which port, in s of the monotonic clock."""
    _last: str = "0"
    _is_settled: bool = True
    _seen_at: int = field(default_factory=time.monotonic_ns)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """Once."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        primary = await asyncio.to_thread(self.group.primary)
        if primary is None:
            return
        if not self.primaries or self.primaries[-1][1] != primary.port:
            self.primaries.append((time.monotonic(), primary.port))
        try:
            async with client_of(primary) as client:
                await self._take(client)
        except UNREACHABLE:
            return

    async def _take(self, client: redis.asyncio.Redis) -> None:
        asked_at = time.monotonic_ns()
        epoch: Any = await client.hget(KEYS.key("meta"), "epoch")
        name = epoch.decode() if epoch else "none"
        if not epoch:
            self._is_settled = False  # a journal that was flushed says nothing of it
        if not self.epochs or self.epochs[-1][1] != name:
            if self.epochs:
                self.on_epoch(self._seen_at, not epoch)
            self.epochs.append((time.monotonic_ns(), name))
        self._seen_at = asked_at
        while True:
            found: Any = await client.xrange(
                KEYS.key("journal"), f"({self._last}" if self._last != "0" else "-", count=AT_ONCE
            )
            for at, fields in found or []:
                self._last = at.decode()
                self._judge(JournalEntry.decode(_text(fields)), self._last)
            if len(found or []) < AT_ONCE:
                return

    def _judge(self, entry: JournalEntry, at: str) -> None:
        self.entries[entry.what] += 1
        if entry.what in ("dropped", "unclear"):
            self.losses.append((time.monotonic_ns(), entry.what))
        if entry.what in ("suspect", "lost"):
            self._is_settled = False
        elif entry.what in ("settle", "build"):
            self._is_settled = True
        for resource in entry.over_granted():
            self.problems.append(f"{at}: {entry.what} left {entry.node} over capacity: {resource}")
        if not self._is_settled and _takes_more(entry):
            self.problems.append(f"{at}: granted on books that are not compared: {entry}")


def _takes_more(entry: JournalEntry) -> bool:
    if entry.what not in GRANTS or not entry.after:
        return False
    had = entry.before if entry.before and entry.source == entry.node else None
    return entry.after.charge_cpu > (had.charge_cpu if had else 0) or entry.after.charge_mem > (
        had.charge_mem if had else 0
    )


async def books_of(group: RedisGroup) -> Books | None:
    """Nodes and pods as the primary has them at one moment; None where it cannot be asked."""
    primary = await asyncio.to_thread(group.primary)
    if primary is None:
        return None
    try:
        async with client_of(primary) as client:
            pipe = client.pipeline(transaction=True)
            pipe.hgetall(KEYS.key("nodes"))
            pipe.hgetall(KEYS.key("pods"))
            pipe.hgetall(KEYS.key("meta"))
            nodes, pods, meta = await pipe.execute()
    except UNREACHABLE:
        return None
    return Books(
        meta=_text(meta),
        nodes={NodeName(k.decode()): NodeRow.decode(v.decode()) for k, v in nodes.items()},
        pods={PodUid(k.decode()): PodRow.decode(v.decode()) for k, v in pods.items()},
    )


@asynccontextmanager
async def client_of(server: Member) -> AsyncIterator[redis.asyncio.Redis]:
    """A client that goes round every link."""
    async with redis.asyncio.Redis(port=server.port, socket_timeout=2) as client:
        yield client


def _text(found: dict[bytes, bytes]) -> dict[str, str]:
    return {key.decode(): value.decode(errors="replace") for key, value in found.items()}
