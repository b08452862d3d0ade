"""The fake API server as a process of its own, full of heavy pods, for measurements.

    python -m tests.support.fake_api --nodes 5000 --pods 150000 --events-per-second 500

Prints its address once it is ready. Each event changes one pod's annotation `changed-at`, the
epoch time in seconds, so that the lag of whoever follows can be told. Ends with its stdin.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from pathlib import Path

from tests.support.fake_api.kinds import CORE, NEONVM
from tests.support.fake_api.samples import Json, big_pod, node
from tests.support.fake_api.server import FakeApi

_BATCH = 0.02
_PLURALS = {kind.name: kind.plural for kind in (*CORE, *NEONVM)}
_REMEMBERED = 20_000
"""Changes of each kind that a watch may still begin before; it may run for hours."""


async def serve(nodes: int, pods: int, events_per_second: float, objects: list[Json]) -> None:
    async with FakeApi() as api:
        api.store.load("namespaces", [{"metadata": {"name": "kube-system", "uid": "cluster"}}])
        for each in objects:
            api.store.create(_PLURALS[each["kind"]], each)
        api.store.load("nodes", (node(f"node-{at:05}") for at in range(nodes)))
        api.store.load("pods", (big_pod(at, node=f"node-{at % nodes:05}") for at in range(pods)))
        print(api.url, flush=True)  # noqa: T201 - whoever started us reads it
        tasks = [
            asyncio.create_task(keep_changing(api, pods, events_per_second)),
            asyncio.create_task(keep_small(api)),
        ]
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()


async def keep_changing(api: FakeApi, pods: int, events_per_second: float) -> None:
    began, done = time.monotonic(), 0
    while events_per_second:
        await asyncio.sleep(_BATCH)
        for _ in range(int((time.monotonic() - began) * events_per_second) - done):
            api.store.update("pods", f"default/pod-{random.randrange(pods):06}", touch)
            done += 1


async def keep_small(api: FakeApi) -> None:
    """Forget what nobody asks for any more: requests, and changes long ago."""
    while True:
        await asyncio.sleep(1)
        api.seen.clear()
        for plural in api.store.tables:
            api.store.trim(plural, keep=_REMEMBERED)


def touch(pod: Json) -> None:
    pod["metadata"].setdefault("annotations", {})["changed-at"] = f"{time.time():.6f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--events-per-second", type=float, default=0)
    parser.add_argument("--objects", type=Path, help="a JSON list of more objects")
    given = parser.parse_args()
    more = json.loads(given.objects.read_text()) if given.objects else []
    asyncio.run(serve(given.nodes, given.pods, given.events_per_second, more))
