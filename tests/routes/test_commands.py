"""The commands that ask a service, check a file or move the books, from option to exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner, Result

from autoscale_enforcer.cli.main import main
from autoscale_enforcer.ledger.keys import Keys
from tests.conftest import StartServer
from tests.support.ports import free_port

DATA = Path(__file__).parents[1] / "data"
CLUSTER = DATA / "traffic" / "cluster.json"
FREE_PORTS = ("--host", "127.0.0.1", *("--extender-port", "0", "--agent-port", "0"))

NODE = {
    "name": "n1",
    "capacity": {"cpuMilli": 4000, "memoryBytes": 16 << 30},
    "reserved": {"cpuMilli": 3920, "memoryBytes": 8 << 30},
    "committed": {"cpuMilli": 3920, "memoryBytes": 8 << 30},
    "pressure": {"cpuMilli": 0, "memoryBytes": 0},
    "migrating": {"cpuMilli": 0, "memoryBytes": 0},
    "pods": 7,
    "overCapacity": False,
    "version": 3,
    "new in a later version": 1,
}
BREACH = {"invariant": 1, "subject": "n1", "text": "reserved_cpu is 1, its pods add up to 2"}


def run(*arguments: object, **options: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], **options)


async def run_beside(*arguments: object, **options: Any) -> Result:
    return await asyncio.to_thread(run, *arguments, **options)


@dataclass
class Stub:
    """An admin port that answers what it is told to."""

    url: str = ""
    answers: dict[str, web.Response] = field(default_factory=dict)

    def say(self, path: str, document: object, status: int = 200) -> None:
        self.answers[path] = web.Response(status=status, text=json.dumps(document))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return self.answers.get(request.path) or web.Response(status=404, text="no such page")


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    stub = Stub()
    app = web.Application()
    app.router.add_get("/{path:.*}", stub.answer)
    async with TestServer(app) as server:
        stub.url = str(server.make_url("")).rstrip("/")
        yield stub


@pytest.fixture
def closed_url() -> str:
    return f"http://127.0.0.1:{free_port()}"


# status and verify


async def test_status_shows_a_table(stub: Stub) -> None:
    stub.say("/api/v1/nodes", {"nodes": [NODE]})

    result = await run_beside("status", "--admin", f"{stub.url}/")

    assert result.exit_code == 0, result.output
    assert "n1    █████████░ 3.92 / 4  █████░░░░░ 8 / 16 GiB     7  -         -" in result.stdout


async def test_status_json_is_what_the_service_answered(stub: Stub) -> None:
    stub.say("/api/v1/nodes", {"nodes": [NODE]})

    result = await run_beside("status", "--json", env={"AE_ADMIN_URL": stub.url})

    assert json.loads(result.stdout) == {"nodes": [NODE]}


async def test_status_keeps_to_the_width_of_the_screen(stub: Stub) -> None:
    names = [f"{number}.{'domain' * 20}" for number in range(2)]
    stub.say("/api/v1/nodes", {"nodes": [{**NODE, "name": name} for name in names]})

    result = await run_beside("status", "--admin", stub.url, env={"COLUMNS": "80"})

    assert max(map(len, result.stdout.splitlines()[:3])) <= 80


async def test_verify_without_breaches_ends_with_0(stub: Stub) -> None:
    stub.say("/api/v1/verify", {"breaches": []})

    result = await run_beside("verify", "--admin", stub.url)

    assert (result.exit_code, result.stdout) == (0, "No breach: the ledger adds up.\n")


@pytest.mark.parametrize("flags", [(), ("--json",)])
async def test_verify_prints_each_breach_and_ends_with_1(
    stub: Stub, flags: tuple[str, ...]
) -> None:
    stub.say("/api/v1/verify", {"breaches": [BREACH, {**BREACH, "invariant": 5}]})

    result = await run_beside("verify", "--admin", stub.url, *flags)

    assert result.exit_code == 1
    assert result.stdout.count("reserved_cpu is 1") == 2
    if flags:
        assert json.loads(result.stdout)["breaches"][0] == BREACH
    else:
        assert "  invariant 5  n1  reserved_cpu is 1" in result.stdout


async def test_certificate_that_is_not_trusted_is_named() -> None:
    """It said "Operation not permitted": OpenSSL's error number was taken for the system's."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    server = await asyncio.start_server(lambda *_: None, "localhost", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]

        result = await run_beside("status", "--admin", f"https://localhost:{port}")

    assert result.exit_code == 3
    assert "certificate verify failed" in result.stderr


@pytest.mark.parametrize("command", ["status", "verify"])
async def test_service_that_cannot_be_reached_ends_with_3(command: str, closed_url: str) -> None:
    result = await run_beside(command, "--admin", closed_url)

    assert result.exit_code == 3
    assert f"cannot reach {closed_url}/api/v1/" in result.stderr
    assert "Connection refused" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["status", "verify"])
@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (503, "the ledger is not built", "answered 503 the ledger is not built"),
        (404, "", "answered 404 Not Found"),
        (302, "", "answered 302"),
        (200, "<html>", "is not one of autoscale-enforcer"),
        (200, "{}", "is not one of autoscale-enforcer"),
    ],
)
async def test_service_that_refuses_ends_with_4(
    stub: Stub, command: str, status: int, text: str, words: str
) -> None:
    for path in ("/api/v1/nodes", "/api/v1/verify"):
        stub.answers[path] = web.Response(status=status, text=text)

    result = await run_beside(command, "--admin", stub.url)

    assert result.exit_code == 4
    assert words in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "url", ["localhost:9100", "http://", "http://h:x", "ftp://h", "http://h?x"]
)
def test_admin_address_that_is_none_ends_with_2(url: str) -> None:
    result = run("status", "--admin", url)

    assert result.exit_code == 2
    assert "is no address like http://127.0.0.1:9100" in result.stderr


# check-config


@pytest.mark.parametrize("file", sorted((DATA / "config").iterdir()), ids=lambda file: file.stem)
def test_check_config_takes_what_releases_shipped(file: Path) -> None:
    text, document = run("check-config", file), run("check-config", file, "--json")

    assert text.exit_code == document.exit_code == 0
    found = json.loads(document.stdout)
    assert found["usable"] is True
    assert f"Its format is the one with `{found['format']}`." in text.stdout
    for unused in found["unusedFields"]:
        assert unused in text.stdout.splitlines()[-1]
    assert found["withoutEffect"] == [
        *("migrateVms", "nodeMetricLabels", "cpuWatermark", "memoryWatermark"),
    ]
    assert "\nWithout effect yet: migrate VMs, metric labels, CPU watermark, memory" in text.stdout


def test_check_config_shows_what_an_override_changes() -> None:
    content = json.dumps(
        {
            "nodeDefaults": {
                "cpu": {"watermark": 0.9, "system": "500m"},
                "memory": {"system": "1Gi"},
                "computeUnit": {"vCPUs": 0.25, "mem": 1},
            },
            "nodeOverrides": [{"nodes": ["big-*"], "config": {"cpu": {"watermark": 0.5}}}],
            "memBlockSize": "1Gi",
        }
    )

    result = run("check-config", "-", input=content)

    lines = [line.split("  ")[-1].strip() for line in result.stdout.splitlines()]
    assert result.exit_code == 0, result.output
    assert "0.5 CPU, 1 GiB" in lines
    assert "0.25 CPU, 1 GiB" in lines
    assert lines.index("90% of the capacity") < lines.index("big-*")
    assert lines.index("big-*") < lines.index("50% of the capacity")


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_check_config_tells_every_problem_and_ends_with_1(flags: tuple[str, ...]) -> None:
    content = '{"scoring": {"scorePeak": 2, "x": 1}, "watermark": "high"}'

    result = run("check-config", "-", *flags, input=content)

    assert result.exit_code == 1
    for path in ("scoring.scorePeak: ", "scoring.x: ", "watermark: "):
        assert path in result.stdout
    if flags:
        assert len(json.loads(result.stdout)["problems"]) == 3


def test_check_config_of_no_file_ends_with_2(tmp_path: Path) -> None:
    assert run("check-config", tmp_path / "absent").exit_code == 2
    assert run("check-config", tmp_path).exit_code == 2


# serve


@contextmanager
def serving(*options: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "autoscale_enforcer.cli.main", "serve", *FREE_PORTS, *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_serve_says_when_it_answers_and_where_and_ends_in_order(redis_url: str) -> None:
    options = ("--cluster", f"file:{CLUSTER}", "--own-ports", "0,0,0", "--replica-name", "me")

    with serving(*options, AE_REDIS_URL=redis_url, AE_ADMIN_PORT="0") as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        answers = [get(ready["ports"]["admin"]), get(ready["ports"]["own"]["admin"])]
        process.send_signal(signal.SIGTERM)
        rest, code = process.stdout.read(), process.wait()

    assert ready["ready"] is True
    assert ready["replica"] == "me"
    assert set(ready["ports"]) == {"extender", "agent", "admin", "own"}
    assert answers == ["me", "me"]
    assert (rest, code) == ("", 0)


def get(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
        return str(answer.headers["X-Replica"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--cluster: is required"),
        (("--cluster", "x"), "--cluster: must be kubernetes or file:PATH"),
        (("--cluster", "file:/absent"), "--cluster: /absent: No such file or directory"),
        (("--hold-lifetime", "30"), "'30' is no duration such as 30s"),
        (("--own-ports", "1"), "'1' is not three ports such as 0,0,0"),
        (("--redis-url", "http://h", "--cluster", f"file:{CLUSTER}"), "unknown scheme 'http'"),
    ],
)
def test_serve_used_wrongly_ends_with_2(options: tuple[str, ...], words: str) -> None:
    result = run("serve", *FREE_PORTS, "--admin-port", "0", *options)

    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_serve_on_a_taken_port_ends_with_2_and_names_it(redis_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        options = ("--admin-port", str(port), "--redis-url", redis_url)
        result = run("serve", *FREE_PORTS, *options, "--cluster", f"file:{CLUSTER}")

    assert result.exit_code == 2
    assert str(port) in result.stderr
    assert "in use" in result.stderr


# export and import


@pytest.fixture
def built(raw_client: redis.asyncio.Redis, redis_url: str) -> str:
    """A Redis with the books of the recorded cluster, from a replica that has ended."""
    options = ("--cluster", f"file:{CLUSTER}", "--redis-url", redis_url, "--admin-port", "0")
    with serving(*options) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.wait()
    return redis_url


async def test_export_and_import_bring_the_books_to_another_place(
    built: str, raw_client: redis.asyncio.Redis, tmp_path: Path
) -> None:
    file, again = tmp_path / "books", tmp_path / "again"
    there = ("--redis-url", built, "--cluster-name", "there")

    exported = await run_beside("export", file, "--redis-url", built)
    assert exported.exit_code == 0, exported
    imported = await run_beside("import", file, *there, "--json")
    refused = await run_beside("import", file, *there)
    replaced = await run_beside("import", "-", *there, "--replace", input=file.read_bytes())
    await run_beside("export", again, *there)

    codes = [result.exit_code for result in (exported, imported, refused, replaced)]
    assert codes == [0, 0, 4, 0], refused.output
    pods = await raw_client.hlen(Keys("default").key("pods"))
    assert json.loads(imported.stdout) == {"nodes": 12, "pods": pods}
    assert replaced.stdout == f"Imported 12 nodes and {pods} pods.\n"
    assert "--replace puts these in their place" in refused.stderr
    assert again.stat().st_size > 1000
    for part in ("pods", "names", "facts"):
        here, other = (Keys(name).key(part) for name in ("default", "there"))
        assert await raw_client.hgetall(here) == await raw_client.hgetall(other)


async def test_import_while_a_replica_leads_is_refused(built: str, tmp_path: Path) -> None:
    file = tmp_path / "books"
    await run_beside("export", file, "--redis-url", built)
    options = ("--cluster", f"file:{CLUSTER}", "--redis-url", built, "--admin-port", "0")
    with serving(*options, "--replica-name", "leading") as process:
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.readline)

        result = await run_beside("import", file, "--redis-url", built, "--replace")

    assert result.exit_code == 4
    assert "replica leading leads" in result.stderr


def test_import_of_something_else_is_refused(redis_url: str, tmp_path: Path) -> None:
    file = tmp_path / "books"
    file.write_bytes(b"something else")

    result = run("import", file, "--redis-url", redis_url)

    assert result.exit_code == 4
    assert "no export of autoscale-enforcer" in result.stderr


def test_export_where_there_are_no_books_ends_with_4_and_writes_nothing(
    redis_url: str, tmp_path: Path
) -> None:
    result = run("export", tmp_path / "books", "--redis-url", redis_url)

    assert result.exit_code == 4
    assert "there are no books of default" in result.stderr
    assert not (tmp_path / "books").exists()


async def test_export_to_where_nothing_can_be_written_ends_with_2(
    built: str, tmp_path: Path
) -> None:
    result = await run_beside("export", tmp_path / "absent" / "books", "--redis-url", built)

    assert result.exit_code == 2
    assert "books: cannot be written: No such file or directory" in result.stderr


async def test_export_to_stdout_is_the_file_alone(built: str) -> None:
    result = await run_beside("export", "-", "--redis-url", built)

    assert result.exit_code == 0
    assert b"autoscale-enforcer books" in result.stdout_bytes
    assert result.stdout_bytes[-1:] != b"\n"


@pytest.mark.parametrize("command", ["export", "import"])
def test_redis_that_is_away_ends_with_3(
    command: str, start_server: StartServer, tmp_path: Path
) -> None:
    books = tmp_path / "books"
    books.write_bytes(b"")
    server = start_server("valkey")
    server.kill()

    result = run(command, books, "--redis-url", server.url, "--redis-call-budget", "1s")

    assert result.exit_code == (3 if command == "export" else 4)  # the file is looked at first
    assert result.stdout == ""
