"""From nothing to serving: the time, and what memory it takes in each process and in Redis."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

from bench.figures import Figure, WrongAnswer
from bench.judge import books_of
from bench.noise import Noise, Watched, memory_kib
from bench.programs import api_server, live_cluster, redis_server, replicas
from bench.scale import Say, Scale

PAGE = 500
"""Objects that the reference asks for at once, as Kubernetes' own clients do."""

SECONDS, BYTES_A_POD, LEADER_MIB, OTHER_MIB = 20.0, 450.0, 450.0, 150.0


def run(scale: Scale, say: Say) -> Iterator[Figure]:
    """The leader builds the ledger from lists; another replica starts beside it."""
    size = scale.cold
    seconds: list[float] = []
    listed: list[float] = []
    bytes_a_pod: list[float] = []
    leader: list[float] = []
    other: list[float] = []
    noise: list[Noise] = []
    say(f"encoding {size.pods} pods")
    with api_server(size) as api:
        for _ in range(scale.cold_starts):
            say("a cold start")
            listed.append(_list_all(api.said))
            watched = Watched([api.pid])
            with ExitStack() as stack:
                server = stack.enter_context(redis_server())
                with server.client() as client:
                    empty = client.info("memory")["used_memory"]
                    flags = stack.enter_context(live_cluster(api.said))
                    began = time.perf_counter()
                    both = replicas(server.tcp_url, "kubernetes", *flags, count=2)
                    found = stack.enter_context(both)
                    seconds.append(time.perf_counter() - began)
                    noise.append(watched.noise(server.pid, *(each.program.pid for each in found)))
                    bytes_a_pod.append((client.info("memory")["used_memory"] - empty) / size.pods)
                    holder = client.hget("ae:{default}:lease", "holder")
                peaks = {each.program.name: _peak_mib(each.program.pid) for each in found}
                name = holder.decode()
                leader.append(peaks.pop(name))
                other.extend(peaks.values())
                _complete(server.tcp_url, scale)
    title = f"cold start, {size.nodes} nodes and {size.pods} pods"
    rows = (
        ("until both replicas serve", seconds, SECONDS, "s"),
        ("Redis' bytes a pod", bytes_a_pod, BYTES_A_POD, "B"),
        ("the leader's memory at its most", leader, LEADER_MIB, "MiB"),
        ("another replica's memory at its most", other, OTHER_MIB, "MiB"),
    )
    for what, values, limit, unit in rows:
        yield Figure(
            name=f"{title}: {what}",
            ours=values,
            reference=None,
            bound="at most",
            limit=limit,
            unit=unit,
            noise=noise if values is seconds else (),
        )
    yield Figure(
        name=f"{title}: time against reading the lists and doing nothing with them",
        ours=seconds,
        reference=listed,
        bound="shown",
        unit="s",
    )


def _peak_mib(pid: int) -> float:
    return memory_kib(pid, "VmHWM") / 1024


def _list_all(url: str) -> float:
    """Seconds that it takes to read every page, decoding no object."""
    began = time.perf_counter()
    for path in ("/api/v1/nodes", "/api/v1/pods", "/apis/vm.neon.tech/v1/virtualmachines"):
        following = ""
        while True:
            asked = f"{url}{path}?limit={PAGE}&continue={following}"
            with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
                head = answer.read()[:1000]
            metadata, _, _ = head.partition(b',"items":')
            following = json.loads(metadata + b"}")["metadata"].get("continue", "")
            if not following:
                break
    return time.perf_counter() - began


def _complete(redis_url: str, scale: Scale) -> None:
    """Raise WrongAnswer where the ledger lacks something that the cluster has."""
    books = books_of(redis_url)
    if (len(books.nodes), len(books.pods)) != (scale.cold.nodes, scale.cold.pods):
        raise WrongAnswer(f"cold start: {len(books.nodes)} nodes and {len(books.pods)} pods")
