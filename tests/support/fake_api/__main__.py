"""The fake API server as a process of its own, full of heavy pods, for measurements.

    python -m tests.support.fake_api --nodes 5000 --pods 150000 --events-per-second 500

Prints its address once it is ready. Each event changes one pod's annotation `changed-at`, the
epoch time in seconds, so that the lag of whoever follows can be told. Ends with its stdin.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time

from tests.support.fake_api.samples import Json, big_pod, node
from tests.support.fake_api.server import FakeApi

_BATCH = 0.02


async def serve(nodes: int, pods: int, events_per_second: float) -> None:
    async with FakeApi() as api:
        api.store.load("namespaces", [{"metadata": {"name": "kube-system", "uid": "cluster"}}])
        api.store.load("nodes", (node(f"node-{at:05}") for at in range(nodes)))
        api.store.load("pods", (big_pod(at, node=f"node-{at % nodes:05}") for at in range(pods)))
        print(api.url, flush=True)  # noqa: T201 - whoever started us reads it
        change = asyncio.create_task(keep_changing(api, pods, events_per_second))
        await asyncio.to_thread(sys.stdin.read)
        change.cancel()


async def keep_changing(api: FakeApi, pods: int, events_per_second: float) -> None:
    began, done = time.monotonic(), 0
    while events_per_second:
        await asyncio.sleep(_BATCH)
        for _ in range(int((time.monotonic() - began) * events_per_second) - done):
            api.store.update("pods", f"default/pod-{random.randrange(pods):06}", touch)
            done += 1


def touch(pod: Json) -> None:
    pod["metadata"].setdefault("annotations", {})["changed-at"] = f"{time.time():.6f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--events-per-second", type=float, default=0)
    given = parser.parse_args()
    asyncio.run(serve(given.nodes, given.pods, given.events_per_second))
