"""One campaign: a replica of its own, so many requests, and what is true of it afterwards."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.reading import find_breaches
from tests.fuzz.caller import Caller, Found
from tests.fuzz.requests import DOORS, TOKEN, TRAFFIC, Requests, Sent
from tests.support.books import settings_at
from tests.support.servers import Server
from tests.support.serving import Served, serving

CALLERS = 8
WARMING = 2000
"""Requests before memory counts: caches and pools fill first."""
FLAGS = ("--compute-unit=250m/1Gi", "--read-timeout=1s")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a campaign found."""

    found: Found
    grown: int
    """Bytes of resident memory."""
    breaches: list[Any]


async def campaign(count: int, seed: int, *, on_part: Callable[[Found], None]) -> Outcome:
    """So many requests to one replica; `on_part` is told now and then."""
    with Server("valkey") as server:
        token = server.folder / "token"
        token.write_text(TOKEN)
        flags = (*FLAGS, f"--admin-token-file={token}")
        cluster = f"file:{TRAFFIC / 'cluster.json'}"
        async with serving(server.url, cluster, *flags, replicas=1) as (replica,):
            found, requests = Found(), iter(Requests(seed))
            await _send(replica, itertools.islice(requests, WARMING), found)
            before = memory_of(replica)
            left = max(0, count - WARMING)
            while left:
                part = min(left, max(1, count // 20))
                await _send(replica, itertools.islice(requests, part), found)
                left -= part
                on_part(found)
            grown = memory_of(replica) - before
            assert replica.process.returncode is None, "the replica has ended"
        return Outcome(found, grown, await _breaches(server.url))


async def _send(replica: Served, requests: Any, found: Found) -> None:
    ports = {
        door: int(url.split(":")[2].partition("/")[0])
        for door, url in zip(DOORS, (replica.extender, replica.agent, replica.admin), strict=True)
    }

    async def send_some(caller: Caller) -> None:
        sent: Sent
        for sent in requests:
            await caller.send(sent)

    callers = [Caller(ports, found) for _ in range(CALLERS)]
    try:
        await asyncio.gather(*(send_some(caller) for caller in callers))
    finally:
        for caller in callers:
            caller.close()


def memory_of(replica: Served) -> int:
    """Bytes that are resident."""
    pages = Path(f"/proc/{replica.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def _breaches(url: str) -> list[Any]:
    ledger = Ledger.open(settings_at(url, cluster="default"))
    try:
        await ledger.look()
        return await find_breaches(ledger)
    finally:
        await ledger.close()
