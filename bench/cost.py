"""What Redis spends on one call, in a small ledger and in a large one: it must be the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import redis
from tests.support.servers import Server

from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName, PodName
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import said_row
from bench.cluster import Size, node_name, plain_pod, vm_pod_name
from bench.figures import Figure, WrongAnswer
from bench.judge import read
from bench.ledgers import build, pod_fact
from bench.programs import redis_server
from bench.raw_calls import CatchingLedger, RawCall, run_all
from bench.scale import Say, Scale

BATCH = 50
"""Calls between two looks at Redis' own clock: many enough for its microseconds, few enough that
most batches are not interrupted."""

UNIT = Resources(250, 1 << 30)
LIMITS_US = {"reserve": 30.0, "request": 25.0}
GROWTH = 1.2


@dataclass(slots=True)
class Side:
    """One ledger with the calls that are measured on it."""

    size: Size
    caught: CatchingLedger
    client: redis.Redis
    nodes: list[NodeName]
    numbers: Iterator[int] = field(default_factory=count)
    us: dict[str, list[float]] = field(default_factory=dict)
    """Microseconds a call, one value a batch."""

    @property
    def ledger(self) -> Ledger:
        """The one whose calls are caught."""
        return self.caught.ledger

    async def round(self) -> None:
        """One batch of each call."""
        pods = [_new_pod(next(self.numbers)) for _ in range(BATCH)]
        nodes = [self.nodes[next(self.numbers) % len(self.nodes)] for _ in pods]
        pairs = list(zip(pods, nodes, strict=True))
        self.measure("reserve", [await self._reserve(*each) for each in pairs], b"HELD")
        self.measure("unreserve", [await self._unreserve(*each) for each in pairs], b"RELEASED")
        for units in (2, 1):
            calls = [await self._request(number, units) for number in range(BATCH)]
            self.measure("request", calls, b"PERMIT")
        await self.ledger.mirror.refresh()
        empty = await self.caught.catch(self.ledger.mirror.refresh())
        self.measure("empty delta", [empty] * BATCH, b"DELTA")

    def measure(self, name: str, calls: Sequence[RawCall], word: bytes) -> None:
        """Note what Redis spent on a call; each must be answered with that word."""
        self.client.config_resetstat()
        answers = run_all(self.client, list(calls))
        stats: dict[str, Any] = self.client.info("commandstats")["cmdstat_evalsha"]
        wrong = [each for each in answers if each[0] != word]
        if wrong or stats["calls"] != len(calls):
            raise WrongAnswer(f"{name}: {wrong[:1] or stats}")
        self.us.setdefault(name, []).append(stats["usec"] / stats["calls"])

    async def _reserve(self, pod: PodFact, node: NodeName) -> RawCall:
        stamp = await self.ledger.stamp()
        return await self.caught.catch(
            self.ledger.reserve_pod(pod.uid, node=node, said=said_row(pod), stamp=stamp)
        )

    async def _unreserve(self, pod: PodFact, node: NodeName) -> RawCall:
        stamp = await self.ledger.stamp()
        return await self.caught.catch(self.ledger.unreserve_pod(pod.uid, node=node, stamp=stamp))

    async def _request(self, number: int, units: int) -> RawCall:
        number %= self.size.vms
        return await self.caught.catch(
            self.ledger.request_permit(
                PodName(f"default/{vm_pod_name(number)}"),
                asked=Resources(units * UNIT.cpu, units * UNIT.mem),
                factor=UNIT,
                last_permit=None,
                stamp=await self.ledger.stamp(),
                context={"replica": "r1", "verb": "agent"},
            )
        )


def _new_pod(number: int) -> PodFact:
    made = plain_pod(number, "", uid=f"00000000-0000-4000-8000-{number:012}")
    made["metadata"]["name"] = f"measured-{number:09}"
    return pod_fact(made)


@asynccontextmanager
async def side(server: Server, size: Size) -> AsyncIterator[Side]:
    """A ledger of that size on that server."""
    caught = CatchingLedger.open(server.tcp_url)
    try:
        await build(caught.ledger, size)
        await caught.ledger.look()
        with server.client() as client:
            nodes = [NodeName(node_name(each)) for each in range(size.nodes)]
            yield Side(size, caught, client, nodes)
    finally:
        await caught.ledger.close()


def run(scale: Scale, say: Say) -> Iterator[Figure]:
    """The least of many batches on each side: what interrupts a batch only makes it longer."""
    return iter(asyncio.run(_measured(scale, say)))


async def _measured(scale: Scale, say: Say) -> list[Figure]:
    with redis_server() as first, redis_server() as second:
        say(f"building ledgers of {scale.small.pods} and {scale.large.pods} pods")
        async with side(first, scale.small) as small, side(second, scale.large) as large:
            say(f"{scale.batches} batches of each call")
            for _ in range(scale.batches):
                await small.round()
                await large.round()
            for server in (first, second):
                await read(server.tcp_url)
            return list(_figures(small, large))


def _figures(small: Side, large: Side) -> Iterator[Figure]:
    for name, values in large.us.items():
        yield Figure(
            name=f"Redis, {name}: {large.size.pods} pods against {small.size.pods}",
            ours=[min(values)],
            reference=[min(small.us[name])],
            bound="at most",
            limit=GROWTH,
            unit="us",
        )
        if name in LIMITS_US:
            yield Figure(
                name=f"Redis, {name}: us a call with {large.size.pods} pods",
                ours=[min(values)],
                reference=None,
                bound="at most",
                limit=LIMITS_US[name],
                unit="us",
            )
