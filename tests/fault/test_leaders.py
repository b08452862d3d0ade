"""A leader that stands still while another takes over, and then goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import groupby
from typing import Any

import msgpack
import pytest
import redis.asyncio

from autoscale_enforcer.ledger.scripts import load_scripts
from autoscale_enforcer.model.resources import Resources
from tests.fault.chaos.watch import client_of
from tests.fault.kit.fleet import Serving
from tests.fault.kit.stage import KEYS, Stage, stage, until
from tests.history.clients import plain_pod
from tests.history.scene import some_nodes
from tests.history.workload import ApiCluster, cluster_objects

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

OBJECTS = cluster_objects(some_nodes(2), clients=0)
ROUNDS = 3
PODS = 60
PUT_POD = load_scripts()["put_pod"].sha


async def test_paused_leader_that_wakes_is_refused_and_two_leaders_never_both_write() -> None:
    async with stage(OBJECTS) as scene, client_of(await scene.primary()) as client:
        begun = await last_entry(client)
        led, late = [(await scene.leader()).name], 0
        await make_pods(scene, "first")
        await until(scene.follows, within=30)
        for number in range(ROUNDS):
            old, token = await scene.leader(), await fence(client)
            old.process.pause()
            await make_pods(
                scene, f"round-{number}"
            )  # its watches have heard of them when it wakes
            await until(partial(is_led_by_another, scene, old), within=30)
            await until(scene.follows, within=30)
            led.append((await scene.leader()).name)
            async with sent_to(client) as sent:
                old.process.resume()
                await until(scene.is_well, within=60)
            late += sum(PUT_POD in command and token in command for command in sent)
        written = await writers(client, since=begun)

    assert late > 0, "no former leader ever tried to write: this proves nothing"
    assert [name for name, _ in groupby(written)] == led


async def make_pods(scene: Stage, prefix: str) -> None:
    """Unbound ones, all at once."""
    cluster = ApiCluster(scene.cluster.url, scene.http)
    made = [plain_pod(f"{prefix}-{number}", Resources(1, 1 << 20)) for number in range(PODS)]
    await asyncio.gather(*map(cluster.create, made))


async def is_led_by_another(scene: Stage, old: Serving) -> bool:
    return await scene.leader() is not old


async def fence(client: redis.asyncio.Redis) -> str:
    """The token without which no fact is taken."""
    token: Any = await client.hget(KEYS.key("meta"), "fence")
    return str(token.decode())


@asynccontextmanager
async def sent_to(client: redis.asyncio.Redis) -> AsyncIterator[list[str]]:
    """Every command that the server is sent while the block lasts."""
    heard: list[str] = []
    async with client.monitor() as monitor:

        async def listen() -> None:
            async for each in monitor.listen():
                heard.append(str(each["command"]))  # noqa: PERF401 - it never ends

        task = asyncio.create_task(listen())
        try:
            yield heard
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def last_entry(client: redis.asyncio.Redis) -> bytes:
    found: Any = await client.xrevrange(KEYS.key("journal"), count=1)
    return bytes(found[0][0])


async def writers(client: redis.asyncio.Redis, *, since: bytes) -> list[str]:
    """The replica behind each fact that a leader has booked, in their order."""
    entries: Any = await client.xrange(KEYS.key("journal"), min=b"(" + since)
    found = [msgpack.unpackb(fields[b"context"]) for _, fields in entries if fields[b"context"]]
    return [each["replica"] for each in found if each.get("verb") in ("watch", "compare")]
