"""Replicas of the service as real processes, each with its own ways to Redis, Sentinels and API."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.fault.kit.link import HOST, Link, Rewrite
from tests.fault.kit.redis_group import NAME, RedisGroup
from tests.support.ports import free_port
from tests.support.process import Process


@dataclass(frozen=True, slots=True)
class Program:
    """What is run as `serve`."""

    python: str = sys.executable
    cluster: str = "kubernetes"
    flags: tuple[str, ...] = ()


class Serving:
    """One process of `serve` with its links; on the same ports in all its lives."""

    def __init__(self, name: str, group: RedisGroup, api_port: int, program: Program) -> None:
        self.name = name
        self.redis_links = {each.port: Link(each.port) for each in group.servers}
        rewrite = _naming({port: link.port for port, link in self.redis_links.items()})
        self.sentinel_links = [Link(each.port, rewrite=rewrite) for each in group.sentinels]
        self.api_link = Link(api_port)
        self._ports = [free_port() for _ in range(3)]
        self._folder = Path(tempfile.mkdtemp(prefix="ae-chaos-"))
        self._stack = AsyncExitStack()
        self.process = Process(self._command(program), folder=self._folder, is_ready=lambda: True)
        self.process.name = name

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            for link in self.links:
                await stack.enter_async_context(link)
            stack.callback(self.process.kill)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    @property
    def links(self) -> list[Link]:
        """All of them."""
        return [*self.redis_side, self.api_link]

    @property
    def redis_side(self) -> list[Link]:
        """Those to Redis and to Sentinels."""
        return [*self.redis_links.values(), *self.sentinel_links]

    @property
    def extender(self) -> str:
        """URL of its own, without a verb."""
        return f"http://{HOST}:{self._ports[0]}/extender"

    @property
    def agent(self) -> str:
        """URL."""
        return f"http://{HOST}:{self._ports[1]}/"

    @property
    def admin(self) -> str:
        """URL."""
        return f"http://{HOST}:{self._ports[2]}"

    def start(self, env: Mapping[str, str] | None = None) -> None:
        """Begin a life, with these variables; it need not answer yet."""
        self.process.env = dict(env or {})
        self.process.start()

    def _command(self, program: Program) -> list[str]:
        sentinels = ",".join(f"{HOST}:{link.port}" for link in self.sentinel_links)
        extender, agent, admin = self._ports
        kubeconfig = self._folder / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(f"http://{HOST}:{self.api_link.port}"))
        is_live = program.cluster == "kubernetes"
        return [
            *(program.python, "-m", "autoscale_enforcer.cli.main", "serve"),
            *("--cluster", program.cluster, "--replica-name", self.name, "--host", HOST),
            *("--redis-url", f"redis+sentinel://{sentinels}/{NAME}/0"),
            *(f"--extender-port={extender}", f"--agent-port={agent}", f"--admin-port={admin}"),
            *(("--kubeconfig", str(kubeconfig)) if is_live else ()),
            *program.flags,
        ]


class Fleet:
    """So many replicas of one program: `async with Fleet(...) as fleet:`; all are started then."""

    def __init__(
        self, group: RedisGroup, api_port: int, program: Program, *, count: int = 3
    ) -> None:
        self.serving = [
            Serving(f"r{number + 1}", group, api_port, program) for number in range(count)
        ]
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for each in self.serving:
                await stack.enter_async_context(each)
                each.start()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    def __iter__(self) -> Iterator[Serving]:
        return iter(self.serving)


def _naming(ports: dict[int, int]) -> Rewrite:
    """Answers of a Sentinel that name links in place of servers; all ports have five digits."""
    pattern = re.compile(
        rb"(?<=[\n ])(" + b"|".join(str(port).encode() for port in ports) + rb")(?=[\r ])"
    )
    names = {str(port).encode(): str(link).encode() for port, link in ports.items()}
    return lambda answer: pattern.sub(lambda found: names[found[1]], answer)


def _kubeconfig(url: str) -> str:
    return json.dumps(
        {
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
    )
