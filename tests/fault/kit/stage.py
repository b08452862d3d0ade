"""Everything that a campaign runs on, put together: Redis group, API server, replicas."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import redis
import redis.asyncio

from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.model.rows import PodRow
from tests.fault.kit.cluster import BEACON, ClusterView, with_beacon
from tests.fault.kit.fleet import Fleet, Program, Serving
from tests.fault.kit.previous import previous_python
from tests.fault.kit.redis_group import UNREACHABLE, Member, RedisGroup
from tests.support.fake_api.process import fake_api_process
from tests.support.fake_api.samples import Json

KEYS = Keys("default")
START_SECONDS = 120
"""Until all is well: three replicas, and a large cluster to be read."""
FLAGS = (
    "--hold-lifetime=30s",
    "--sweep-every=2s",
    "--lease-lifetime=3s",
    "--lease-renew-every=1s",
    "--compare-every=20s",
    "--journal-length=1000000",
)


@dataclass(slots=True)
class Stage:
    """Where faults happen."""

    group: RedisGroup
    fleet: Fleet
    previous: Serving
    """One replica of the previous release; it runs only in a rolling update."""
    cluster: ClusterView
    http: aiohttp.ClientSession

    @property
    def answering(self) -> list[Serving]:
        """Whom to ask: all replicas that are meant to run."""
        running = self.previous.process.is_running
        return [*self.fleet, *([self.previous] if running else [])]

    async def primary(self) -> Member:
        """The one that Sentinels name; waits until there is one."""
        while True:
            if found := await asyncio.to_thread(self.group.primary):
                return found
            await asyncio.sleep(0.05)

    async def leader(self) -> Serving:
        """The replica that leads; waits until one does."""
        while True:
            async with redis.asyncio.Redis(port=(await self.primary()).port) as client:
                holder: Any = await client.hget(KEYS.key("lease"), "holder")
            for each in self.fleet:
                if holder and each.name == holder.decode():
                    return each
            await asyncio.sleep(0.05)

    async def is_ready(self) -> bool:
        """Every replica is, by its own word."""
        return all(await asyncio.gather(*map(self._is_ready, self.fleet)))

    async def is_settled(self) -> bool:
        """The ledger is built and compared, on a primary that may be written to."""
        health = await asyncio.to_thread(self.group.health)
        if health.primary is None or health.replicas < 1:
            return False
        try:
            async with redis.asyncio.Redis(port=health.primary.port, socket_timeout=1) as client:
                return bool(await client.hget(KEYS.key("meta"), "state") == b"settled")
        except UNREACHABLE:
            return False

    async def follows(self) -> bool:
        """The ledger hears of what happens in the cluster; waits for some seconds at most."""
        version = await self.cluster.touch_beacon()
        end = time.monotonic() + 2
        while time.monotonic() < end:
            row = await self.row_of(BEACON)
            if row and int(row.rv) >= version:
                return True
            await asyncio.sleep(0.05)
        return False

    async def row_of(self, uid: str) -> PodRow | None:
        """What the ledger says of a pod; None too where the primary does not answer."""
        try:
            primary = await self.primary()
            async with redis.asyncio.Redis(port=primary.port, socket_timeout=1) as client:
                text: Any = await client.hget(KEYS.key("pods"), uid)
        except UNREACHABLE:
            return None
        return PodRow.decode(text.decode()) if text else None

    async def is_well(self) -> bool:
        """Every replica answers from books that are what the cluster says."""
        return await self.is_ready() and await self.is_settled() and await self.follows()

    def logs(self, last: int = 2000) -> str:
        """What each replica wrote last."""
        every = (*self.fleet, self.previous)
        return "\n".join(f"--- {each.name}\n{each.process.log(last)}" for each in every)

    async def _is_ready(self, serving: Serving) -> bool:
        timeout = aiohttp.ClientTimeout(total=1)
        try:
            async with self.http.get(f"{serving.admin}/readyz", timeout=timeout) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False


@asynccontextmanager
async def stage(
    objects: Sequence[Json], *flags: str, nodes: int = 0, pods: int = 0
) -> AsyncIterator[Stage]:
    """A well one, whose cluster begins with these objects; nothing of it is left afterwards.

    `flags` are more of `serve`; `nodes` and `pods` so many more, as heavy as real ones.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ae-chaos-")))
        file = folder / "objects.json"
        file.write_text(json.dumps(with_beacon(objects)))
        api_url, _ = stack.enter_context(fake_api_process(objects=file, nodes=nodes, pods=pods))
        api_port = urlsplit(api_url).port or 0
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        )
        group = stack.enter_context(RedisGroup())
        await group.until_whole()
        fleet = Fleet(group, api_port, Program(flags=(*FLAGS, *flags)))
        await stack.enter_async_context(fleet)
        previous = Serving("previous", group, api_port, _previous(folder, objects))
        await stack.enter_async_context(previous)
        made = Stage(group, fleet, previous, ClusterView(api_url, http), http)
        try:
            await until(made.is_well, within=START_SECONDS)
        except TimeoutError as error:
            error.add_note(made.logs())
            raise
        yield made


def _previous(folder: Path, objects: Sequence[Json]) -> Program:
    """Knows no live cluster: it has the nodes from a file, and the pods from the ledger."""
    file = folder / "nodes.json"
    nodes = [each for each in objects if each["kind"] == "Node"]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    return Program(str(previous_python()), f"file:{file}", ("--hold-lifetime=30s",))


async def until(is_so: Callable[[], Awaitable[bool]], *, within: float) -> None:
    """Wait for a state; TimeoutError where it does not come."""
    end = time.monotonic() + within
    async with asyncio.timeout(within):
        while not await is_so():
            if time.monotonic() > end:  # redis-py may turn a cancellation into another error
                raise TimeoutError
            await asyncio.sleep(0.1)
