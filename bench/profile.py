"""Profiles a replica while it does one thing: python -m bench.profile agents|filter|cold

Writes a flame graph to docs/profiles and prints where the time went. Its pictures are of the
machine that drew them: draw both again when you compare.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path

from bench.agent_rate import CONNECTIONS
from bench.agents import requests_of, split
from bench.cluster import Size
from bench.flame import read, svg, table
from bench.load import Connection, drive, request
from bench.programs import (
    ROOT,
    Replica,
    api_server,
    live_cluster,
    redis_server,
    replica_command,
    replicas,
)
from bench.scale import FULL
from bench.scheduling import SIZES, names_body

FOLDER = ROOT / "docs" / "profiles"
SPY = Path(sys.executable).parent / "py-spy"
SECONDS = 15
PORTS = [f"--{door}-port=0" for door in ("extender", "agent", "admin")]
EACH_SECOND = 250
BELOW = "Runner.run (asyncio"
"""What is above it is the command line's."""


def agents() -> list[str]:
    """Requests that change something, over 32 connections."""
    with _replica(FULL.agents) as replica, ExitStack() as stack:
        connections = [_opened(stack, replica.agent) for _ in range(CONNECTIONS)]
        parts = split(FULL.agents.vms, CONNECTIONS)
        requests = [requests_of(replica.agent, each) for each in parts]
        return _spied(replica, lambda: drive(connections, requests, seconds=1))


def filters() -> list[str]:
    """Filters of 5,000 names, with a permit that changes before each."""
    with _replica(FULL.filters) as replica, ExitStack() as stack:
        connection, agent = (_opened(stack, each) for each in (replica.extender, replica.agent))
        changes = requests_of(replica.agent, range(100))
        bodies = [names_body(number, FULL.filters.nodes) for number in range(len(SIZES))]
        sent = cycle([request(f"{replica.extender}/filter", body) for body in bodies])

        def work() -> None:
            agent.ask(next(changes))
            connection.ask(next(sent))

        return _spied(replica, work)


def cold() -> list[str]:
    """A leader from its start until it has built a ledger of 30,000 pods and serves."""
    with ExitStack() as stack:
        api = stack.enter_context(api_server(Size(nodes=1000, pods=30_000, vms=2000)))
        server = stack.enter_context(redis_server())
        flags = stack.enter_context(live_cluster(api.said))
        command = replica_command(server.tcp_url, "r1", "--cluster=kubernetes", *PORTS, *flags)
        with _recording("--", *command) as (spy, path):
            assert spy.stdout is not None
            for line in spy.stdout:
                if line.startswith(b'{"ready"'):
                    break
            os.kill(_child(spy.pid), signal.SIGTERM)
            spy.wait()
            return path.read_text().splitlines()


def _spied(replica: Replica, work: Callable[[], object]) -> list[str]:
    """Stacks of the replica while we do that over and over."""
    work()
    with _recording("--duration", str(SECONDS), "--pid", str(replica.program.pid)) as (spy, path):
        while spy.poll() is None:
            work()
        return path.read_text().splitlines()


@contextmanager
def _recording(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    with tempfile.TemporaryDirectory(prefix="ae-bench-") as folder:
        path = Path(folder) / "stacks"
        command = [str(SPY), "record", "--native", "--format", "raw"]
        command += ["--rate", str(EACH_SECOND), "--output", str(path), *arguments]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield process, path
            finally:
                process.terminate()


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _opened(stack: ExitStack, url: str) -> Connection:
    connection = Connection(url)
    stack.callback(connection.close)
    return connection


PROFILES: dict[str, Callable[[], list[str]]] = {"agents": agents, "filter": filters, "cold": cold}


@contextmanager
def _replica(size: Size) -> Iterator[Replica]:
    with ExitStack() as stack:
        api = stack.enter_context(api_server(size))
        server = stack.enter_context(redis_server())
        flags = stack.enter_context(live_cluster(api.said))
        (found,) = stack.enter_context(replicas(server.tcp_url, "kubernetes", *flags))
        yield found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="bench.profile", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROFILES))
    for name in parser.parse_args().names or PROFILES:
        root = read(PROFILES[name](), below=BELOW)
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.svg").write_text(svg(root, name))
        sys.stdout.write(f"{name}\n{table(root)}\n")


if __name__ == "__main__":
    main()
