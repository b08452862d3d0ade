"""Pods as kube-scheduler and kubelets see them through: made, filtered, bound, and gone again.

    python -m bench.binder --api URL --extenders URL,URL --seconds N --rate N --nodes N

A process of its own, for the load generator has one thread only. Pods go to the extenders by turns;
the bind goes to the other one than the filter did. Prints one line of JSON at its end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp
import uvloop

from bench.cluster import node_name, plain_pod

LIVES_SECONDS = 5.0
OFFERED = 100
"""Node names in one filter."""


@dataclass(slots=True)
class Bound:
    """What came of it."""

    bound: int = 0
    wrong: list[str] = field(default_factory=list)
    """Filters that leave nodes out, though there is room on all of them."""
    refused: list[str] = field(default_factory=list)
    """Calls that were answered with an error."""
    waits: list[float] = field(default_factory=list)
    """Seconds of each bind."""


@dataclass(slots=True)
class Binder:
    """So many pods a second, each through its whole life."""

    http: aiohttp.ClientSession
    api: str
    extenders: Sequence[str]
    nodes: int
    found: Bound = field(default_factory=Bound)

    async def run(self, *, rate: float, seconds: float) -> None:
        """Returns when the last pod is gone."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(int(rate * seconds)):
                await asyncio.sleep(max(began + number / rate - time.monotonic(), 0))
                group.create_task(self._live(number))

    async def _live(self, number: int) -> None:
        here = self.extenders[number % len(self.extenders)]
        other = self.extenders[(number + 1) % len(self.extenders)]
        pods = f"{self.api}/api/v1/namespaces/default/pods"
        made = plain_pod(number, "")
        made["metadata"]["name"] = f"soaked-{number:07}"
        pod = await self._call("POST", pods, made)
        names = [node_name((number * 7 + at) % self.nodes) for at in range(OFFERED)]
        names = list(dict.fromkeys(names))
        answer = await self._call("POST", f"{here}/filter", {"Pod": pod, "NodeNames": names})
        if answer.get("Error"):
            self.found.refused.append(f"filter: {answer['Error']}")
            return
        if answer["NodeNames"] != names:
            self.found.wrong.append(f"filter: {answer['FailedNodes']}")
            return
        named = pod["metadata"]
        args = {"PodName": named["name"], "PodNamespace": "default", "PodUID": named["uid"]}
        began = time.monotonic()
        answer = await self._call("POST", f"{other}/bind", args | {"Node": names[0]})
        self.found.waits.append(time.monotonic() - began)
        if answer.get("Error"):
            self.found.refused.append(f"bind: {answer['Error']}")
            return
        self.found.bound += 1
        await asyncio.sleep(LIVES_SECONDS)
        await self._call("DELETE", f"{pods}/{named['name']}?gracePeriodSeconds=0", None)

    async def _call(self, method: str, url: str, body: Any) -> Any:
        async with self.http.request(method, url, json=body) as answer:
            return await answer.json(content_type=None)


async def _main(given: argparse.Namespace) -> Bound:
    async with aiohttp.ClientSession() as http:
        binder = Binder(http, given.api, given.extenders.split(","), given.nodes)
        await binder.run(rate=given.rate, seconds=given.seconds)
        return binder.found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--api", required=True)
    parser.add_argument("--extenders", required=True)
    for name in ("seconds", "rate"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    sys.stdout.write(json.dumps(asdict(uvloop.run(_main(parser.parse_args())))) + "\n")
