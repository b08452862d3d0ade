"""The start scripts of the Sentinel overlay, run with real servers on addresses of this machine."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from tests.support.manifests import DEPLOY, REDIS, SENTINEL
from tests.support.ports import free_port
from tests.support.process import Process
from tests.support.servers import binary
from tests.support.waiting import until

SCRIPTS = DEPLOY / "overlays" / "sentinel"
NETWORKS = itertools.count(10)
SHIMS = {
    # In a pod a server has its own address; here it must keep to one of many.
    "redis-server": 'exec {redis_server} "$@" --bind "$SELF"',
    # Addresses stand for names here, and none of them has one.
    "getent": "exit 0",
}


class Machine:
    """Redis 0 to 2 and Sentinels 0 to 2, each on an address of its own, with data that stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {"6379": free_port(), "26379": free_port()}
        self.network = f"127.{next(NETWORKS)}.{self.ports['6379'] % 250}"
        self.processes: dict[str, Process] = {}
        (folder / "bin").mkdir()
        for name, line in SHIMS.items():
            shim = folder / "bin" / name
            shim.write_text(f"#!/bin/sh\n{line.format(redis_server=binary('redis'))}\n")
            shim.chmod(0o755)

    def address(self, kind: str, number: int) -> str:
        return f"{self.network}.{(100 if kind == SENTINEL else 1) + number}"

    def start(self, kind: str, number: int) -> None:
        """As its pod would; it need not be ready yet."""
        own = self.folder / f"{kind}-{number}"
        own.mkdir(exist_ok=True)
        name = "start-redis.sh" if kind == REDIS else "start-sentinel.sh"
        text = (SCRIPTS / name).read_text().replace("/data", str(own))
        text = re.sub(r"\b2?6379\b", lambda found: str(self.ports[found[0]]), text)
        (own / name).write_text(text)
        variables = [
            f"PATH={self.folder / 'bin'}:/usr/bin:/bin",
            f"SELF={self.address(kind, number)}",
            f"FIRST={self.address(REDIS, 0)}",
            f"SENTINELS={self.address(SENTINEL, 0)}",
        ]
        command = ["/usr/bin/env", "-i", *variables, "sh", str(own / name)]
        process = Process(command, folder=own, is_ready=lambda: True)
        process.start()
        self.processes[f"{kind}-{number}"] = process

    def kill(self, kind: str, number: int) -> None:
        self.processes.pop(f"{kind}-{number}").kill()

    def kill_all(self) -> None:
        for process in self.processes.values():
            process.kill()
        self.processes.clear()

    def ask(self, kind: str, number: int, *words: str) -> object:
        """An answer, or None while there is none."""
        port = self.ports["26379" if kind == SENTINEL else "6379"]
        address = self.address(kind, number)
        with redis.Redis(address, port, decode_responses=True, protocol=2) as client:
            try:
                return client.execute_command(*words)
            except redis.RedisError:
                return None

    def role(self, number: int) -> str:
        found = self.ask(REDIS, number, "ROLE")
        return str(found[0]) if isinstance(found, list) else "none"

    def named_primary(self) -> int | None:
        """Number of the Redis that every Sentinel names; None while they do not agree."""
        words = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "enforcer")
        named = {str(self.ask(SENTINEL, number, *words)) for number in range(3)}
        found = [
            n for n in range(3) if all(f"'{self.address(REDIS, n)}'" in each for each in named)
        ]
        return found[0] if found else None

    def is_whole(self) -> bool:
        """Every Sentinel knows the others, and both replicas."""
        words = ("SENTINEL", "MASTER", "enforcer")
        known = [self.ask(SENTINEL, number, *words) for number in range(3)]
        expected = {("num-slaves", "2"), ("num-other-sentinels", "2")}
        return all(isinstance(k, list) and expected <= set(itertools.pairwise(k)) for k in known)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with ExitStack() as stack:
        made = Machine(tmp_path)
        stack.callback(made.kill_all)
        for number in range(3):
            made.start(REDIS, number)
            made.start(SENTINEL, number)
        until(made.is_whole)
        until(lambda: made.ask(REDIS, 0, "SET", "k", "first") is True)  # a replica is connected
        yield made


@pytest.mark.long
def test_lost_primary_is_replaced_and_comes_back_as_a_replica(machine: Machine) -> None:
    assert [machine.role(number) for number in range(3)] == ["master", "slave", "slave"]

    machine.kill(REDIS, 0)
    until(lambda: machine.named_primary() not in (0, None))
    primary = machine.named_primary() or 0
    until(lambda: machine.ask(REDIS, primary, "SET", "k", "second") is True)
    machine.start(REDIS, 0)

    until(lambda: machine.ask(REDIS, 0, "GET", "k") == "second")
    assert machine.role(0) == "slave"


@pytest.mark.long
def test_after_all_were_down_the_last_primary_is_followed(machine: Machine) -> None:
    """Redis 0, which was primary first, must not make the others copy its older books."""
    machine.kill(REDIS, 0)
    until(lambda: machine.named_primary() not in (0, None))
    primary = machine.named_primary() or 0
    until(lambda: machine.ask(REDIS, primary, "SET", "k", "second") is True)
    until(lambda: machine.ask(REDIS, 3 - primary, "GET", "k") == "second")
    machine.kill_all()

    for number in range(3):
        machine.start(REDIS, number)
    until(lambda: "waiting" in machine.processes[f"{REDIS}-0"].log())
    assert machine.role(0) == "none"
    for number in range(3):
        machine.start(SENTINEL, number)

    until(lambda: machine.ask(REDIS, 0, "GET", "k") == "second")
    until(lambda: machine.named_primary() == primary)
    assert machine.role(primary) == "master"
