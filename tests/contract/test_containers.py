"""The image and the compose file, run without a container: what is written there must work."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support.containers import (
    DOORS,
    FILES,
    PROXY,
    REDIS,
    REPLICA,
    Stack,
    misfits,
    outside,
    outside_environment,
    outside_proxy,
)
from tests.support.ports import free_port
from tests.support.servers import Kind

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "deploy" / "sample" / "names.jsonl"
TOKENS = {
    "variable": r"\bAE_[A-Z_]+(?=:)",
    "port": r"\b(?:6379|10298|10299|9100)\b(?!\.)",
    "path": r"(?<![\w./])\.?/(?:opt/\w+|(?:deploy|sample|usr/local/etc)[\w./-]*)",
    "host": r"\b(?:redis|enforcer)(?=:\d{4})",
}
"""What a mistake can be in."""


class Broken(Exception):
    """What would be started does not start, or does not answer."""


class Ports:
    """A free port of this machine for each port of a service, the same one each time."""

    def __init__(self) -> None:
        self.taken: dict[tuple[str, int], int] = {}

    def __call__(self, service: str, port: int) -> int:
        return self.taken.setdefault((service, port), free_port())


@contextmanager
def process(*command: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that has ended when the block has; its stderr is a file."""
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stderr=errors, stdout=subprocess.PIPE, text=True, **options) as p,
    ):
        try:
            yield p
        except Broken as error:
            p.kill()
            p.wait()
            errors.seek(0)
            raise Broken(f"{error}\n{errors.read()}") from error
        finally:
            p.terminate()


@contextmanager
def replica(
    stack: Stack, start_server: StartServer, kind: Kind = "valkey"
) -> Iterator[tuple[Ports, subprocess.Popen[str]]]:
    """One replica as the image starts it, with the Redis of the compose file; ready."""
    ports = Ports()
    redis = start_server(kind, *stack.services[REDIS]["command"][1:], tcp=True)
    for port in stack.exposed(REDIS):
        ports.taken[REDIS, port] = redis.port
    program, *words = stack.image.command
    environment = outside_environment(stack, ports)
    command = [str(Path(sys.executable).with_name(program)), *words]
    with process(*command, env=environment, cwd="/") as running:
        line = running.stdout.readline() if running.stdout else ""
        if not line.startswith('{"ready":true'):
            raise Broken(f"ended, or not ready: {line}")
        yield ports, running


def call(port: int, path: str, body: Any = None) -> tuple[int, str, str]:
    """Status, body and replica of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET" if body is None else "POST", path, json.dumps(body or {}))
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers.get("X-Replica", "")
    except OSError as error:
        raise Broken(f"nobody answers on {port}: {error}") from error
    finally:
        connection.close()


def expect_service(extender: int, agent: int, admin: int, *, ready: str) -> None:
    """Each door answers as itself: a filter call with a decision, an agent with a refusal."""
    first = json.loads(RECORDING.read_text().splitlines()[0])
    status, body, _ = call(admin, ready)
    if status != 200:
        raise Broken(f"{ready}: {status} {body}")
    status, body, name = call(extender, "/extender/filter", first["request"])
    if status != 200 or json.loads(body)["NodeNames"] != first["request"]["NodeNames"] or not name:
        raise Broken(f"filter: {status} {body}")
    status, body, _ = call(agent, "/", {"pod": {}})
    if status != 400 or not body.startswith("protoVersion: is required"):
        raise Broken(f"agent: {status} {body}")
    _, body, _ = call(admin, "/metrics")
    if set(re.findall(r'ae_connections{door="(\w+)"}', body)) != {"extender", "agents", "admin"}:
        raise Broken(f"metrics: {body}")


def through(stack: Stack, ports: Ports) -> list[int]:
    """Where the proxy would send what comes in at each door."""
    inside = dict(stack.published)
    routes = {listens: (host, port) for listens, host, port in stack.proxy.routes()}
    return [ports(*routes[inside[door]]) for door in DOORS]


def check(stack: Stack, start_server: StartServer) -> None:
    """Raises Broken where the image does not run as the compose file has it."""
    with replica(stack, start_server) as (ports, _):
        check_port, ready = stack.proxy.check
        extender, agent, _ = through(stack, ports)
        expect_service(extender, agent, ports(REPLICA, check_port), ready=ready)
        python, *words = [outside(word, stack, ports) for word in stack.healthcheck]
        if python != "python" or subprocess.run([sys.executable, *words], check=False).returncode:
            raise Broken("the healthcheck fails")


def altered(folder: Path, file: str, old: str, new: str, *, at: int = 0) -> Stack:
    """A copy of the checkout in which one text of one file is another one, from position `at`."""
    for path in ROOT.iterdir():
        if path.name not in {"deploy", ".git", *FILES}:
            (folder / path.name).symlink_to(path)
    (folder / "deploy" / "compose").mkdir(parents=True)
    (folder / "deploy" / "sample").symlink_to(ROOT / "deploy" / "sample")
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    text = (folder / file).read_text()
    assert old in text[at:]
    (folder / file).write_text(text[:at] + text[at:].replace(old, new, 1))
    return Stack(folder)


def code_of(file: str) -> str:
    """The text with comments blanked, so that positions stay."""
    text = (ROOT / file).read_text()
    return re.sub(r"(?m)^\s*#.*$", lambda comment: " " * len(comment[0]), text)


def mistakes() -> Iterator[Any]:
    """Every variable, port, host and path of the files, each with one character left out."""
    for file in ("Dockerfile", "docker-compose.yml", "deploy/compose/haproxy.cfg"):
        text = code_of(file)
        for kind, pattern in TOKENS.items():
            for found in re.finditer(pattern, text):
                wrong = found[0][:-2] + found[0][-1]
                line = text[: found.start()].count("\n") + 1
                where = f"{file}:{line}:{found.start()}-{kind}"
                yield pytest.param(file, found.start(), found[0], wrong, id=where)


MISTAKES = list(mistakes())


def test_image_answers_with_the_environment_of_the_compose_file(start_server: StartServer) -> None:
    stack = Stack(ROOT)

    found = list(misfits(stack))
    check(stack, start_server)

    assert found == []


def test_replica_ends_in_order_when_compose_stops_it(start_server: StartServer) -> None:
    with replica(Stack(ROOT), start_server) as (_, running):
        running.terminate()

        assert running.wait(timeout=10) == 0


def test_redis_of_the_compose_file_keeps_what_it_is_told(start_server: StartServer) -> None:
    server = start_server("valkey", *Stack(ROOT).services[REDIS]["command"][1:])

    with server.client() as client:
        settings = client.config_get("appendonly", "maxmemory-policy")

    assert settings == {"appendonly": "yes", "maxmemory-policy": "noeviction"}
    assert Stack(ROOT).services[REDIS]["volumes"] == ["ledger:/data"]


def test_compose_file_follows_the_schema_of_compose() -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]

    done = subprocess.run(
        [*checker, ROOT / "docker-compose.yml"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout


def test_mistakes_of_every_kind_are_tried() -> None:
    tried = Counter(param.id.rpartition("-")[2] for param in MISTAKES)

    assert tried["variable"] == len(Stack(ROOT).environment)
    assert tried["port"] >= 24
    assert tried["path"] >= 12
    assert tried["host"] >= 4


@pytest.mark.parametrize(("file", "at", "old", "new"), MISTAKES)
def test_mistyped_variable_port_host_or_path_is_found(
    tmp_path: Path, file: str, at: int, old: str, new: str
) -> None:
    stack = altered(tmp_path, file, old, new, at=at)

    assert list(misfits(stack)) != []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("docker-compose.yml", "AE_CLUSTER:", "AE_CLUSTRE:"),
        ("docker-compose.yml", 'AE_AGENT_PORT: "10299"', 'AE_AGENT_PORT: "10289"'),
        ("docker-compose.yml", "127.0.0.1:9100/readyz", "127.0.0.1:9101/readyz"),
        ("docker-compose.yml", "./deploy/sample:/sample", "./deploy/sample:/smaple"),
        ("docker-compose.yml", "--appendonly", "--appendnoly"),
        ("deploy/compose/haproxy.cfg", "enforcer:10298", "enforcer:10299"),
        ("deploy/compose/haproxy.cfg", "/readyz", "/raedyz"),
        ("Dockerfile", 'CMD ["serve"]', 'CMD ["sevre"]'),
    ],
)
def test_mistake_keeps_the_image_from_working(
    start_server: StartServer, tmp_path: Path, file: str, old: str, new: str
) -> None:
    """The same by running alone, without comparing the files first."""
    stack = altered(tmp_path, file, old, new)

    with pytest.raises((Broken, RuntimeError)):
        check(stack, start_server)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("Dockerfile", "3.12.14", "3.12"),
        ("Dockerfile", 'CMD ["serve"]', "CMD serve"),
        ("Dockerfile", "USER 65532:65532", "USER root"),
        ("Dockerfile", "--require-hashes --requirement", "--requirement"),
        ("Dockerfile", "COPY lua lua", "COPY lau lau"),
        ("Dockerfile", "requirements/runtime.txt", "requirements/runtmie.txt"),
        ("Dockerfile", '["autoscale-enforcer"]', '["autoscale-enforcre"]'),
        ("Dockerfile", "--from=build", "--from=biuld"),
        (".dockerignore", "!lua", "!lau"),
        ("docker-compose.yml", "AE_AGENT_PORT", "AE_ADMIN_PORT"),
        ("docker-compose.yml", '"true"', "true"),
        ("docker-compose.yml", "redis:7.2.14-alpine", "redis:latest"),
    ],
)
def test_image_that_could_not_be_built_or_trusted_is_found(
    tmp_path: Path, file: str, old: str, new: str
) -> None:
    stack = altered(tmp_path, file, old, new)

    assert list(misfits(stack)) != []


@pytest.mark.long
def test_haproxy_reads_its_config_and_reaches_each_door(
    start_server: StartServer, tmp_path: Path
) -> None:
    """The real proxy, a replica behind it, and Redis as in the compose file."""
    stack = Stack(ROOT)
    haproxy = shutil.which("haproxy")
    assert haproxy, "haproxy is missing: run `make test-long` as root, or install it"
    subprocess.run([haproxy, "-c", "-q", "-f", stack.proxy_file], check=True)

    with replica(stack, start_server, "redis") as (ports, _):
        (tmp_path / "haproxy.cfg").write_text(outside_proxy(stack, ports))
        with process(haproxy, "-db", "-f", str(tmp_path / "haproxy.cfg")):
            extender, agent, admin = (ports(PROXY, inside) for _, inside in stack.published)
            await_ready(admin)
            expect_service(extender, agent, admin, ready="/readyz")


def await_ready(port: int) -> None:
    """HAProxy answers 503 itself until it has checked a replica; pytest's limit ends the wait."""
    while True:
        try:
            if call(port, "/readyz")[0] == 200:
                return
        except Broken:
            continue
