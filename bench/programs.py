"""What is measured, as processes of their own: replicas, the bare handler, the peer, Redis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.kubeconfig import kubeconfig_of
from tests.support.ports import free_port
from tests.support.process import Process
from tests.support.servers import Kind, Server

from bench.cluster import Size

HOST = "127.0.0.1"
BARE = Path(__file__).parent / "bare.py"
ROOT = Path(__file__).parents[1]
READY_SECONDS = 300.0
"""A build of 150,000 pods takes its time, and more of it on a busy machine."""


@dataclass(frozen=True, slots=True)
class Program:
    """One that runs and has said where it answers."""

    name: str
    pid: int
    said: str
    """The line by which it said so."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of the service."""

    program: Program
    extender: str
    """URL, without a verb."""
    agent: str
    admin: str
    own_extender: str
    """URL of this one alone, where several share a port."""
    own_agent: str
    """The same for agents."""


@dataclass(slots=True)
class Starting:
    """A program that has been told to start."""

    process: Process
    first: str
    """What the line begins with by which it says that it answers."""

    def line(self) -> str:
        """That line, once it is whole."""
        written = self.process.log().splitlines(keepends=True)
        found = (each for each in written if each.startswith(self.first) and each.endswith("\n"))
        return next(found, "").strip()


@contextmanager
def program(name: str, command: list[str], *, first: str) -> Iterator[Program]:
    """It runs until the block ends; entered once it has written a line that begins with `first`."""
    with _started([(name, command)], first=first) as (found,):
        yield found


@contextmanager
def _started(commands: Sequence[tuple[str, list[str]]], *, first: str) -> Iterator[list[Program]]:
    """Several programs, told to start at the same time."""
    with ExitStack() as stack:
        starting = []
        for name, command in commands:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ae-bench-")))
            process = Process(command, folder=folder, is_ready=lambda: True)
            process.name = name
            process.start()
            stack.callback(process.stop)
            starting.append(Starting(process, first))
        end = time.monotonic() + READY_SECONDS
        while not all(each.line() for each in starting):
            if time.monotonic() > end:
                logs = [each.process.log(5000) for each in starting]
                raise RuntimeError("\n".join(["not ready:", *logs]))
            time.sleep(0.02)
        yield [Program(each.process.name, each.process.pid, each.line()) for each in starting]


@contextmanager
def redis_server(kind: Kind = "redis") -> Iterator[Server]:
    """A private Redis that listens on loopback, as one in a cluster would."""
    with Server(kind, tcp=True) as server:
        yield server


@contextmanager
def replicas(redis_url: str, cluster: str, *flags: str, count: int = 1) -> Iterator[list[Replica]]:
    """So many replicas of a live cluster, started at once; several share their ports."""
    ports = [f"--{door}-port={free_port()}" for door in ("extender", "agent", "admin")]
    if count > 1:
        ports += ["--reuse-port", "--own-ports=0,0,0"]
    commands = []
    for number in range(1, count + 1):
        name = f"r{number}"
        source = f"--cluster={cluster}"
        commands.append((name, replica_command(redis_url, name, source, *ports, *flags)))
    with _started(commands, first='{"ready":') as found:
        yield [_replica(each) for each in found]


def replica_command(redis_url: str, name: str, *flags: str) -> list[str]:
    """What starts a replica; without other flags on its usual ports."""
    command = [sys.executable, "-m", "autoscale_enforcer.cli.main", "serve", "--host", HOST]
    return [*command, "--redis-url", redis_url, f"--replica-name={name}", *flags]


def _replica(made: Program) -> Replica:
    ports = json.loads(made.said)["ports"]
    url = {door: f"http://{HOST}:{ports[door]}" for door in ("extender", "agent", "admin")}
    own = ports.get("own") or ports
    return Replica(
        made,
        extender=f"{url['extender']}/extender",
        agent=f"{url['agent']}/",
        admin=url["admin"],
        own_extender=f"http://{HOST}:{own['extender']}/extender",
        own_agent=f"http://{HOST}:{own['agent']}/",
    )


@contextmanager
def bare_handler() -> Iterator[Program]:
    """`bench.bare`; `said` is its URL."""
    with program("bare", [sys.executable, str(BARE)], first="http://") as found:
        yield found


@contextmanager
def go_peer(binary: Path, *flags: str, **environ: str) -> Iterator[Program]:
    """The Go extender; `said` is its URL, without a verb."""
    named = [f"{name}={value}" for name, value in environ.items()]
    command = ["/usr/bin/env", *named, str(binary), *flags]
    with program("peer", command, first="http://") as found:
        yield found


@contextmanager
def api_server(size: Size) -> Iterator[Program]:
    """`bench.api` with that cluster; `said` is its URL."""
    command = [sys.executable, "-m", "bench.api"]
    command += ["--nodes", str(size.nodes), "--pods", str(size.pods), "--vms", str(size.vms)]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Program("api", process.pid, process.stdout.readline().strip())
        finally:
            process.stdin.close()
            process.wait()


@contextmanager
def live_cluster(url: str) -> Iterator[list[str]]:
    """Flags with which a replica follows the API server at that URL."""
    with tempfile.TemporaryDirectory(prefix="ae-bench-") as folder:
        path = kubeconfig_of(url, Path(folder))
        yield [f"--kubeconfig={path}", "--settle-after=0s", "--bind-budget=0s"]
