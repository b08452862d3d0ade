"""Dockerfile, compose file and proxy config, held against each other and against the checkout.

No Docker engine is needed: `misfits` compares what is written, and `outside` says it again as it is
on this machine, with other hosts, ports and paths.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from autoscale_enforcer.cli.main import COMMANDS, ENVIRONMENT_PREFIX

DOORS = (10298, 10299, 9100)
"""kube-scheduler's, the agents', and people's: the ports that README.md promises."""

REPLICA, REDIS, PROXY = "enforcer", "redis", "proxy"
"""Names of the services."""

FILES = ("Dockerfile", ".dockerignore", "docker-compose.yml", "deploy/compose/haproxy.cfg")

PortOf = Callable[[str, int], int]
"""A service and one of its ports -> the port of this machine that stands for it."""

HOST_PORT = re.compile(r"(?<![\w.])([a-z][\w-]*|127\.0\.0\.1):(\d+)\b")
_EXACT_TAG = re.compile(r"[a-z0-9./-]+:\d+\.\d+\.\d+[a-z0-9.-]*(@sha256:[0-9a-f]{64})?")
_PATH = re.compile(r"(?:^|:)(/[\w./-]+)$")


def repeated_keys(node: yaml.Node | None) -> Iterator[str]:
    """Keys that are written twice in one mapping: Compose refuses them, PyYAML takes the last."""
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        yield from {key for key in keys if keys.count(key) > 1}
        for _, value in node.value:
            yield from repeated_keys(value)


class Dockerfile:
    """Its instructions in order, with the defaults of `ARG` put in."""

    def __init__(self, file: Path) -> None:
        lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
        joined = "\n".join(lines).replace("\\\n", " ")
        found = [line.partition(" ")[::2] for line in joined.splitlines() if line.strip()]
        defaults = dict(rest.split("=", 1) for word, rest in found if word == "ARG")
        self.instructions = [
            (word, re.sub(r"\$\{(\w+)\}", lambda name: defaults[name[1]], " ".join(rest.split())))
            for word, rest in found
        ]
        begins = max(i for i, (word, _) in enumerate(self.instructions) if word == "FROM")
        self.last_stage = self.instructions[begins:]

    def all(self, word: str) -> list[str]:
        """What follows the word, everywhere."""
        return [rest for each, rest in self.instructions if each == word]

    def last(self, word: str) -> str:
        """What follows the word in the image itself; empty where it is not there."""
        return next((rest for each, rest in reversed(self.last_stage) if each == word), "")

    @property
    def command(self) -> list[str]:
        """ENTRYPOINT and CMD; ValueError where a shell would be needed to run them."""
        return [*json.loads(self.last("ENTRYPOINT")), *json.loads(self.last("CMD"))]

    @property
    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for pair in self.last("ENV").split())


class ProxyConfig:
    """The lines of a HAProxy config, by section."""

    def __init__(self, file: Path) -> None:
        self.sections: dict[str, list[list[str]]] = {}
        lines: list[list[str]] = []
        for line in file.read_text().splitlines():
            words = line.partition("#")[0].split()
            if words and not line[0].isspace():
                self.sections[" ".join(words)] = lines = []
            elif words:
                lines.append(words)

    def one(self, section: str, *begins: str) -> list[str]:
        """What follows these words in the section's only line that begins with them."""
        count = len(begins)
        (found,) = [w[count:] for w in self.sections[section] if tuple(w[:count]) == begins]
        return found

    def routes(self) -> Iterator[tuple[int, str, int]]:
        """Each port that is listened on, with the host and port it is handed on to."""
        for section in self.sections:
            if section.startswith("frontend "):
                backend = "backend " + self.one(section, "default_backend")[0]
                host, _, port = self.one(backend, "server-template")[2].partition(":")
                yield int(self.one(section, "bind")[0].removeprefix(":")), host, int(port)

    @property
    def check(self) -> tuple[int, str]:
        """Port and path that tell whether a replica is ready."""
        server = self.one("defaults", "default-server")
        request = self.one("defaults", "http-check", "send")
        return int(server[server.index("port") + 1]), request[request.index("uri") + 1]


class Stack:
    """What the files in a folder say is to run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.compose_file = folder / "docker-compose.yml"
        self.proxy_file = folder / "deploy" / "compose" / "haproxy.cfg"
        text = self.compose_file.read_text()
        self.repeated = sorted(repeated_keys(yaml.compose(text)))
        self.services: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
        self.image = Dockerfile(folder / "Dockerfile")
        self.proxy = ProxyConfig(self.proxy_file)

    @property
    def environment(self) -> dict[str, str]:
        """Of a replica, as the compose file has it."""
        return {name: str(value) for name, value in self._environment.items()}

    @property
    def _environment(self) -> dict[str, object]:
        environment: dict[str, object] = self.services[REPLICA]["environment"]
        return environment

    @property
    def no_texts(self) -> list[str]:
        """Variables that YAML may read as something else than what is written."""
        return [name for name, value in self._environment.items() if not isinstance(value, str)]

    @property
    def healthcheck(self) -> list[str]:
        """What tells Compose that a replica is ready, without the word that it begins with."""
        test: list[str] = self.services[REPLICA]["healthcheck"]["test"]
        return test[1:]

    def exposed(self, service: str) -> list[int]:
        return [int(port) for port in self.services[service].get("expose", [])]

    @property
    def published(self) -> list[tuple[int, int]]:
        """Ports of the host and the proxy's ports behind them."""
        parts = [port.split(":") for port in self.services[PROXY]["ports"]]
        return [(int(host), int(inside)) for _, host, inside in parts]

    def mounts(self, service: str) -> dict[PurePosixPath, Path]:
        """Folders and files of the host by where the container has them; no named volumes."""
        parts = [volume.split(":") for volume in self.services[service].get("volumes", [])]
        return {PurePosixPath(p[1]): self.folder / p[0] for p in parts if p[0].startswith(".")}


def misfits(stack: Stack) -> Iterator[str]:
    """Everything in one of the files that does not fit another of them, or the checkout."""
    yield from _wrong_image(stack)
    yield from _wrong_sources(stack)
    yield from _wrong_venv(stack)
    yield from _wrong_ports(stack)
    yield from _wrong_routes(stack)
    yield from _wrong_variables(stack)
    yield from _wrong_paths(stack)


def outside(text: str, stack: Stack, port_of: PortOf) -> str:
    """A text of a replica's container as it must read outside: hosts, ports and mounted paths."""

    def moved(found: re.Match[str]) -> str:
        host = REPLICA if found[1] == "127.0.0.1" else found[1]
        known = host in stack.services
        return f"127.0.0.1:{port_of(host, int(found[2]))}" if known else found[0]

    text = HOST_PORT.sub(moved, text)
    for inside, path in stack.mounts(REPLICA).items():
        text = re.sub(rf"(?<![\w/]){inside}(?=/|$)", str(path.resolve()), text)
    return text


def outside_environment(stack: Stack, port_of: PortOf) -> dict[str, str]:
    """A replica's environment as it must be outside."""
    return {
        name: str(port_of(REPLICA, int(value)))
        if _takes_port(name)
        else outside(value, stack, port_of)
        for name, value in stack.environment.items()
    }


def outside_proxy(stack: Stack, port_of: PortOf) -> str:
    """The proxy's config as it must be outside."""
    text = re.sub(
        r"(?m)^(\s+bind ):(\d+)$",
        lambda found: f"{found[1]}127.0.0.1:{port_of(PROXY, int(found[2]))}",
        stack.proxy_file.read_text(),
    )
    text = re.sub(r"\bport (\d+)\b", lambda found: f"port {port_of(REPLICA, int(found[1]))}", text)
    return re.sub(
        rf"\b({REPLICA}):(\d+)$",
        lambda found: f"127.0.0.1:{port_of(found[1], int(found[2]))}",
        text,
        flags=re.MULTILINE,
    )


def _takes_port(variable: str) -> bool:
    return _replica_variables().get(variable) == "PORT"


@cache
def _replica_variables() -> dict[str, str | None]:
    """The variables that `serve` reads, with what their options take."""
    options = COMMANDS["serve"].load().params
    return {f"{ENVIRONMENT_PREFIX}_{(o.name or '').upper()}": o.metavar for o in options}


def _wrong_image(stack: Stack) -> Iterator[str]:
    image = stack.image
    project = tomllib.loads((stack.folder / "pyproject.toml").read_text())["project"]
    bases = [rest.split()[0] for rest in image.all("FROM")]
    bases += [service["image"] for service in stack.services.values() if "build" not in service]
    for base in bases:
        if not _EXACT_TAG.fullmatch(base):
            yield f"{base} is not pinned"
    try:
        program = image.command[0]
    except ValueError:
        yield "ENTRYPOINT and CMD need a shell"
        return
    if program not in project["scripts"]:
        yield f"the package installs no {program}"
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", image.last("USER")):
        yield f"USER {image.last('USER')} is no number, or root"
    if any(word == "RUN" for word, _ in image.last_stage):
        yield "the last stage runs something: what it needs comes from the build stage"


def _wrong_sources(stack: Stack) -> Iterator[str]:
    """What is copied must be there, and be let through; what is used must have been copied."""
    copies = [rest.split() for rest in stack.image.all("COPY")]
    copied = {name for words in copies if words[0][0] != "-" for name in words[:-1]}
    for name in copied:
        if not _is_in_context(stack.folder, name):
            yield f"COPY {name}: not there, or held back"
    commands = " ".join(stack.image.all("RUN"))
    used = set(re.findall(r"--requirement (\S+)", commands))
    yield from (f"{name} is copied or used, not both" for name in used ^ _locks(copied))
    yield from (f"{path} is no venv" for path in _programs(commands) - _venvs(commands))
    if commands.count("--requirement ") != commands.count("--require-hashes "):
        yield "something is installed without its hashes"
    needed = {"LICENSE", "README.md", "pyproject.toml", "service", "lua"}
    yield from (f"the wheel needs {name}" for name in needed - copied)


def _wrong_venv(stack: Stack) -> Iterator[str]:
    """What the build stage made is where the image looks for it."""
    commands = " ".join(stack.image.all("RUN"))
    (words,) = [rest.split() for word, rest in stack.image.last_stage if word == "COPY"]
    if words[0] != "--from=build" or not stack.image.all("FROM")[0].endswith(" AS build"):
        yield f"{words[0]} names no stage"
    for where in words[1:]:
        if where not in _venvs(commands):
            yield f"nothing makes {where}"
    if stack.image.environment["PATH"].split(":")[0] != f"{words[-1]}/bin":
        yield f"PATH does not begin with {words[-1]}/bin"
    for path in re.findall(r"/dist\b\S*", commands):
        if path not in {"/dist", "/dist/*.whl"}:
            yield f"{path} is not where the wheel is"


def _locks(copied: set[str]) -> set[str]:
    return {name for name in copied if name.startswith("requirements/")}


def _programs(commands: str) -> set[str]:
    return set(re.findall(r"(/\S+)/(?:bin|lib)\b", commands))


def _venvs(commands: str) -> set[str]:
    return set(re.findall(r"-m venv (\S+)", commands))


def _is_in_context(folder: Path, name: str) -> bool:
    patterns = (folder / ".dockerignore").read_text().splitlines()
    top = name.split("/", maxsplit=1)[0]
    sent = True
    for pattern in patterns:
        if pattern and not pattern.startswith("#") and fnmatch(top, pattern.removeprefix("!")):
            sent = pattern.startswith("!")
    return sent and (folder / name).exists()


def _wrong_ports(stack: Stack) -> Iterator[str]:
    set_ = {int(v) for name, v in stack.environment.items() if _takes_port(name)}
    said = {
        "EXPOSE": [int(port) for port in stack.image.last("EXPOSE").split()],
        "expose": stack.exposed(REPLICA),
        "AE_…_PORT": sorted(set_, key=DOORS.index) if set_ <= set(DOORS) else set_,
        "ports, outside": [host for host, _ in stack.published],
        "ports, inside": [inside for _, inside in stack.published],
        "the proxy's frontends": [listens for listens, _, _ in stack.proxy.routes()],
        "the proxy's backends": [port for _, _, port in stack.proxy.routes()],
    }
    for where, ports in said.items():
        if ports != list(DOORS):
            yield f"{where} are {ports}, not {list(DOORS)}"


def _wrong_routes(stack: Stack) -> Iterator[str]:
    for _, host, port in stack.proxy.routes():
        if host != REPLICA or port not in stack.exposed(REPLICA):
            yield f"the proxy sends to {host}:{port}, which nobody exposes"
    if stack.proxy.check[0] not in stack.exposed(REPLICA):
        yield f"the proxy checks port {stack.proxy.check[0]}, which nobody exposes"
    for text in (*stack.environment.values(), *stack.healthcheck):
        for host, port in HOST_PORT.findall(text):
            service = REPLICA if host == "127.0.0.1" else host
            if service not in stack.services or int(port) not in stack.exposed(service):
                yield f"{text}: no service {host} exposes {port}"


def _wrong_variables(stack: Stack) -> Iterator[str]:
    yield from (f"{key} is written twice" for key in stack.repeated)
    yield from (f"{name} is no text" for name in stack.no_texts)
    for name in stack.environment.keys() - _replica_variables().keys():
        yield f"serve reads no {name}"


def _wrong_paths(stack: Stack) -> Iterator[str]:
    for service in stack.services:
        for inside, path in stack.mounts(service).items():
            if not path.exists():
                yield f"{service} mounts {path}, which is not there"
            if service == PROXY and str(inside) != "/usr/local/etc/haproxy/haproxy.cfg":
                yield f"HAProxy's image does not read {inside}"
    for name, value in stack.environment.items():
        if found := _PATH.search(value):
            moved = outside(found[1], stack, lambda _, port: port)
            if moved == found[1] or not Path(moved).exists():
                yield f"{name}: nothing is mounted at {found[1]}"
