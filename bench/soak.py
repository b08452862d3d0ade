"""Agents and binds at the rate of a large cluster, for a while: p99, memory, nothing refused."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.support.servers import Server

from bench.agents import judge_permits, requests_of, split
from bench.binder import Bound
from bench.figures import Figure, WrongAnswer
from bench.judge import books_of, verify
from bench.load import Connection, drive
from bench.noise import Noise, Watched, memory_kib
from bench.programs import ROOT, Replica, api_server, live_cluster, redis_server, replicas
from bench.scale import Say, Scale

CONNECTIONS = 64
"""To one replica, as agents find one; each speaks for many VMs."""

SLICE_SECONDS = 10.0
"""Memory and noise are looked at between slices."""

END_SECONDS = 60.0
"""For the last pods to go."""

P99_SECONDS = 0.020
GROWTH = 1.05
"""Of memory from the run's second quarter to its last. In a run of less than four minutes Redis'
grows by the journal, which is not full yet."""


@dataclass(slots=True)
class _Course:
    """What was seen, slice by slice."""

    p99: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    refused: int = 0
    noise: list[Noise] = field(default_factory=list)
    memory: dict[str, list[float]] = field(default_factory=dict)
    """KiB, by process."""

    def growth(self, name: str) -> float:
        """The last quarter's median as a multiple of the second's."""
        values = self.memory[name]
        quarter = max(len(values) // 4, 1)
        earlier = values[quarter : 2 * quarter] or values
        return statistics.median(values[-quarter:]) / statistics.median(earlier)


def run(scale: Scale, say: Say) -> Iterator[Figure]:
    """All agents to one replica, binds to both."""
    with ExitStack() as stack:
        say(f"starting two replicas over {scale.soak.pods} pods")
        api = stack.enter_context(api_server(scale.soak))
        server = stack.enter_context(redis_server())
        flags = stack.enter_context(live_cluster(api.said))
        both = stack.enter_context(replicas(server.tcp_url, "kubernetes", *flags, count=2))
        say(f"{scale.soak_agents} requests and {scale.soak_binds} binds a second")
        course = _Course()
        with _binding(api.said, [each.own_extender for each in both], scale) as binds:
            _agents(stack, both, server, scale, course)
            bound = binds()
        verify(both[0].admin)
        books_of(server.tcp_url)
    title = f"soak, {scale.soak_seconds:.0f} s"
    ordered = sorted(course.waits)
    yield Figure(
        name=f"{title}: agents' p99 of all",
        ours=[ordered[int(len(ordered) * 0.99)]],
        reference=None,
        bound="at most",
        limit=P99_SECONDS,
        unit="s",
        noise=course.noise,
    )
    yield Figure(
        name=f"{title}: agents' p99 of a slice",
        ours=course.p99,
        reference=None,
        bound="shown",
        unit="s",
    )
    for name in course.memory:
        yield Figure(
            name=f"{title}: memory of {name}, last quarter against the second",
            ours=[course.growth(name)],
            reference=None,
            bound="at most",
            limit=GROWTH,
        )
    for what, refusals in (("requests", course.refused), ("pods", len(bound.refused))):
        yield Figure(
            name=f"{title}: {what} refused, though there was room for all",
            ours=[refusals],
            reference=None,
            bound="at most",
            limit=0,
        )
    if bound.refused:
        say(f"the first: {bound.refused[0]}")
    yield Figure(
        name=f"{title}: binds that were done, and their p99",
        ours=[sorted(bound.waits)[int(len(bound.waits) * 0.99)]],
        reference=None,
        bound="shown",
        unit=f"s of {bound.bound} binds",
    )


def _agents(
    stack: ExitStack, both: Sequence[Replica], server: Server, scale: Scale, course: _Course
) -> None:
    url = both[0].own_agent
    connections = []
    for _ in range(CONNECTIONS):
        connection = Connection(url)
        stack.callback(connection.close)
        connections.append(connection)
    requests = [requests_of(url, each) for each in split(scale.soak.vms, CONNECTIONS)]
    pids = {each.program.name: each.program.pid for each in both} | {"Redis": server.pid}
    left = scale.soak_seconds
    while left > 0:
        watched = Watched(list(pids.values()))
        seconds = min(SLICE_SECONDS, left)
        load = drive(connections, requests, seconds=seconds, rate=scale.soak_agents)
        judge_permits(load)
        course.refused += load.refused
        left -= seconds
        course.p99.append(load.at(0.99))
        course.waits += load.waits
        course.noise.append(watched.noise())
        for name, pid in pids.items():
            course.memory.setdefault(name, []).append(memory_kib(pid))


@contextmanager
def _binding(api: str, extenders: Sequence[str], scale: Scale) -> Iterator[Callable[[], Bound]]:
    """Pods that live and go meanwhile; what it gives waits for the last of them.

    WrongAnswer where a filter was wrong.
    """
    command = [sys.executable, "-m", "bench.binder", "--api", api]
    command += ["--extenders", ",".join(extenders), "--nodes", str(scale.soak.nodes)]
    command += ["--rate", str(scale.soak_binds), "--seconds", str(scale.soak_seconds)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:

        def end() -> Bound:
            said, _ = process.communicate(timeout=END_SECONDS)
            found = Bound(**json.loads(said))
            if found.wrong:
                raise WrongAnswer(f"{len(found.wrong)} filters wrong: {found.wrong[0]}")
            return found

        try:
            yield end
        finally:
            process.kill()
