"""A fake API server in a process of its own, with a cluster of any size encoded beforehand.

    python -m bench.api --nodes 5000 --pods 150000 --vms 10000

Prints its URL once it is ready; ends with its stdin. Objects are kept as the bytes that a page
holds, so that a page costs it one join.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import msgspec
from tests.support.fake_api.server import FakeApi
from tests.support.fake_api.store import Store, key_of

from bench.cluster import SCHEDULER, Json, Size, objects

CONFIG = {"scoring": {}, "schedulerName": SCHEDULER}
_PLURALS = {"Node": "nodes", "Pod": "pods", "VirtualMachine": "virtualmachines"}


def fill(store: Store, size: Size) -> None:
    """Everything of that cluster, each object with the version that it carries."""
    encode = msgspec.json.Encoder().encode
    for each in objects(size):
        row: Json = {
            name: part for name, part in each.items() if name not in ("kind", "apiVersion")
        }
        store.tables[_PLURALS[each["kind"]]].put(key_of(row["metadata"]), encode(row))
        store.pass_version(int(row["metadata"]["resourceVersion"]))
    for plural in _PLURALS.values():
        store.forget(plural)
    store.load("namespaces", [{"metadata": {"name": "kube-system", "uid": "bench"}}])
    text = msgspec.json.encode(CONFIG).decode()
    named = {"name": "scheduler-plugin-config", "namespace": "kube-system"}
    data = {"autoscaler-enforcer-config.json": text}
    store.load("configmaps", [{"metadata": named, "data": data}])


async def serve(size: Size) -> None:
    """Until stdin ends."""
    async with FakeApi() as api:
        fill(api.store, size)
        sys.stdout.write(f"{api.url}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("nodes", "pods", "vms"):
        parser.add_argument(f"--{name}", type=int, default=0)
    given = parser.parse_args()
    asyncio.run(serve(Size(nodes=given.nodes, pods=given.pods, vms=given.vms)))
