"""One replica in this process, with its three real ports, over a private server and any cluster.

Its leader does nothing on its own: `lead` is one turn of it, so that a test decides when.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import aiohttp
from aiohttp import web

from autoscale_enforcer.api.admin import admin_app
from autoscale_enforcer.api.agents import AgentDesk, agent_port
from autoscale_enforcer.api.door.front_door import FrontDoor
from autoscale_enforcer.api.door.plain_connection import Plain
from autoscale_enforcer.api.extender.app import extender_app
from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.api.order_desk import OrderDesk
from autoscale_enforcer.cluster.binder import Binder
from autoscale_enforcer.cluster.leader import Leader, LeaderSettings
from autoscale_enforcer.cluster.learner import NodeLearner, PodLearner
from autoscale_enforcer.cluster.list_differences import list_differences
from autoscale_enforcer.cluster.release import Releaser
from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.cluster.sweep import Sweeper
from autoscale_enforcer.cluster.upkeep import ListUpkeep
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.config.scheduler_config import DEFAULT_CONFIG, SchedulerConfig
from autoscale_enforcer.config.settings import LimitSettings
from autoscale_enforcer.ledger.calls import LedgerSettings
from autoscale_enforcer.ledger.connection import ConnectionSettings
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.reading import find_breaches
from autoscale_enforcer.model.ids import PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import NodeRow, PodRow
from tests.support.cluster_double import Json

Door = Literal["extender", "agent", "admin"]

_LARGE = 1 << 20

UNIT = {"vCPUs": "250m", "mem": "1Gi"}
"""The compute unit of the field reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a replica is like."""

    name: str = "r1"
    config: SchedulerConfig = DEFAULT_CONFIG
    compute_unit: Resources | None = None
    limits: LimitSettings = field(default_factory=LimitSettings)
    hold_lifetime: timedelta = timedelta(seconds=30)
    settle_after: timedelta = timedelta(0)
    call_budget: timedelta = timedelta(seconds=50)  # a busy machine may keep Redis from running
    renew_every: timedelta = timedelta(seconds=1.5)
    admin_token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def kind(self) -> str:
        return self.headers["Content-Type"].partition(";")[0]


@dataclass(frozen=True, slots=True)
class Filtered:
    """What a filter said, in short."""

    passed: list[str]
    failed: dict[str, str]
    unresolvable: dict[str, str]
    error: str

    @classmethod
    def of(cls, answer: Json) -> Filtered:
        return cls(
            answer["NodeNames"] or [],
            answer["FailedNodes"],
            answer["FailedAndUnresolvableNodes"],
            answer["Error"],
        )


@dataclass(slots=True, repr=False)
class Replica:
    """A running replica, and the keys behind it."""

    kind: Kind
    ledger: Ledger
    desk: Desk
    binder: Binder
    leader: Leader
    ports: dict[Door, int]
    session: aiohttp.ClientSession
    raw: Any
    """A client that bypasses the ledger and answers bytes."""

    # What reaches it

    async def send(
        self,
        door: Door,
        path: str,
        body: bytes | str | Any = b"",
        *,
        method: str = "POST",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """One request, whatever comes of it; a body that is no text goes as JSON."""
        data: Any = body if isinstance(body, bytes | str | AsyncIterable) else _json(body)
        if isinstance(data, bytes) and len(data) > _LARGE:
            data = io.BytesIO(data)  # aiohttp wants it so
        url = f"http://127.0.0.1:{self.ports[door]}{path}"
        async with self.session.request(method, url, data=data, headers=headers) as answer:
            return Reply(answer.status, dict(answer.headers), await answer.read())

    async def post(self, verb: str, **fields: Any) -> Any:
        """The JSON that an extender verb answers to these fields."""
        reply = await self.send("extender", f"/extender/{verb}", fields)
        assert reply.status == 200, reply
        assert reply.kind == "application/json"
        assert reply.headers["X-Replica"] == self.kind.name
        return reply.json

    async def filter(self, pod: Json, *nodes: str) -> Filtered:
        return Filtered.of(await self.post("filter", Pod=pod, NodeNames=nodes or ["n1"]))

    async def prioritize(self, pod: Json, *nodes: str) -> dict[str, int]:
        scores = await self.post("prioritize", Pod=pod, NodeNames=nodes or ["n1"])
        return {score["Host"]: score["Score"] for score in scores}

    async def preempt(self, pod: Json, **victims: list[str]) -> dict[str, list[str]]:
        offered = {node: {"Pods": [{"UID": uid} for uid in uids]} for node, uids in victims.items()}
        answer = await self.post("preempt", Pod=pod, NodeNameToMetaVictims=offered)
        kept = answer["NodeNameToMetaVictims"]
        return {node: [pod["UID"] for pod in one["Pods"]] for node, one in kept.items()}

    async def bind(self, pod: Json, node: str = "n1") -> str:
        """The `Error` that a bind answers; empty when it is bound."""
        answer = await self.post("bind", **bind_args(pod, node))
        error: str = answer["Error"]
        return error

    async def reserve(self, pod: Json, node: str = "n1") -> tuple[str, list[str]]:
        return _coded(await self.post("reserve", Pod=pod, NodeName=node))

    async def unreserve(self, pod: Json, node: str = "n1") -> tuple[str, list[str]]:
        return _coded(await self.post("unreserve", Pod=pod, NodeName=node))

    async def ask(self, name: str, cpu: object, mem: object, **more: Any) -> Reply:
        """What an agent of protocol v5.0 is answered; `more` replaces or adds fields."""
        asked = {
            "protoVersion": 7,
            "pod": {"namespace": "default", "name": name},
            "computeUnit": UNIT,
            "resources": {"vCPUs": cpu, "mem": mem},
            "lastPermit": None,
            "metrics": None,
        }
        return await self.send("agent", "/", asked | more)

    async def permit(self, name: str, cpu: object, mem: object, **more: Any) -> tuple[Any, Any]:
        """The permit that an agent is told."""
        reply = await self.ask(name, cpu, mem, **more)
        assert reply.status == 200, reply
        return reply.json["permit"]["vCPUs"], reply.json["permit"]["mem"]

    # What it does on its own

    async def lead(self) -> None:
        """One turn of its leader."""
        await self.leader._turn()

    async def catch_up(self) -> None:
        """Its leader books everything that the cluster has."""
        self.leader._has_caught_up = False
        await self.lead()

    async def sweep(self, *, lapsed: int = 1) -> None:
        """Its leader looks for lapsed holds, once so many have lapsed."""

        async def have_lapsed() -> bool:
            return len((await self.ledger.find_lapsed(limit=lapsed + 1)).pods) >= lapsed

        await until(have_lapsed)
        await self.leader._sweeper.sweep()

    async def loses_its_primary(self) -> None:
        """Another server is primary now, as far as the ledger can tell: a suspect epoch begins."""
        await self.raw.hset(Keys("default").key("meta"), "replid", "another")

    # What the books say

    async def row(self, uid: str) -> PodRow | None:
        known = await self.ledger.read_pod(uid=PodUid(uid))
        return known.row if known else None

    async def where(self, uid: str) -> str:
        """`stage node` of a pod, or `unknown`."""
        row = await self.row(uid)
        return f"{row.stage} {row.node}" if row else "unknown"

    async def node(self, name: str = "n1") -> NodeRow:
        text = await self.raw.hget(Keys("default").key("nodes"), name)
        return NodeRow.decode(text.decode())

    async def reserved(self, name: str = "n1") -> tuple[int, int]:
        """Millicores and MiB reserved on a node."""
        reserved = (await self.node(name)).reserved
        return reserved.cpu, reserved.mem >> 20

    async def verify(self) -> list[Any]:
        return await find_breaches(self.ledger)

    async def dump(self) -> dict[str, Any]:
        """Every key of the database as it is."""
        keys = sorted(await self.raw.keys("*"))
        kinds = [(await self.raw.type(key)).decode() for key in keys]
        return {
            key.decode(): await self._content(key, kind)
            for key, kind in zip(keys, kinds, strict=True)
        }

    async def _content(self, key: bytes, kind: str) -> Any:
        if kind == "hash":
            return await self.raw.hgetall(key)
        if kind == "zset":
            return await self.raw.zrange(key, 0, -1, withscores=True)
        if kind == "stream":
            return await self.raw.xrange(key)
        return await self.raw.get(key)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a state; pytest's time limit ends the wait."""
    while not await is_so():  # noqa: ASYNC110 - what is waited for may be in Redis only
        await asyncio.sleep(0.001)


def bind_args(pod: Json, node: str = "n1") -> Json:
    """ExtenderBindingArgs for a pod."""
    named = pod["metadata"]
    return {
        "PodName": named["name"],
        "PodNamespace": named["namespace"],
        "PodUID": named["uid"],
        "Node": node,
    }


@asynccontextmanager
async def running(
    url: str, raw: Any, source: ClusterSource | Any, kind: Kind
) -> AsyncIterator[Replica]:
    """A replica that answers; `source` may also be a function that makes one of a ledger."""
    async with AsyncExitStack() as stack:
        ledger = Ledger.open(_ledger_settings(url, kind))
        stack.push_async_callback(ledger.close)
        source = source(ledger) if callable(source) else source
        config = LiveConfig(kind.config, version="1")
        binder = Binder(ledger, source, config)
        leader = Leader(
            ledger,
            ListUpkeep(ledger, source, config),
            Sweeper(ledger, source, binder, replica=kind.name),
            settings=_leader_settings(kind),
        )
        learner = NodeLearner(ledger, source, config)
        stack.push_async_callback(learner.close)
        desk = Desk(
            ledger=ledger,
            source=source,
            binder=binder,
            learner=learner,
            config=config,
            replica=kind.name,
            limits=kind.limits,
        )
        stack.push_async_callback(desk.finish, 1.0)
        pod_learner = PodLearner(ledger, source, config)
        stack.push_async_callback(pod_learner.close)
        agents = AgentDesk(
            ledger=ledger,
            learner=pod_learner,
            config=config,
            compute_unit=kind.compute_unit,
            replica=kind.name,
        )
        port = agent_port(agents, kind.limits)
        ports: dict[Door, int] = {
            "extender": await _open(stack, extender_app(desk, kind.limits), kind),
            "agent": await _open(stack, port.app, kind, port.plain),
            "admin": await _open(
                stack,
                admin_app(
                    ledger,
                    replica=kind.name,
                    orders=OrderDesk(
                        ledger=ledger,
                        replica=kind.name,
                        releaser=Releaser(ledger, source, binder),
                        differences=partial(list_differences, ledger, source, config),
                    ),
                    token_file=kind.admin_token_file,
                ),
                kind,
            ),
        }
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Replica(kind, ledger, desk, binder, leader, ports, session, raw)


async def _open(
    stack: AsyncExitStack, app: web.Application, kind: Kind, plain: Plain | None = None
) -> int:
    door = FrontDoor(app, kind.limits, plain=plain)
    await door.start()
    stack.push_async_callback(door.close)
    return await door.listen("127.0.0.1", 0, reuse_port=False)


def _ledger_settings(url: str, kind: Kind) -> LedgerSettings:
    return LedgerSettings(
        connection=ConnectionSettings(url=url, socket_timeout=20, max_connections=8),
        hold_lifetime=kind.hold_lifetime,
        settle_after=kind.settle_after,
        call_budget=kind.call_budget,
    )


def _leader_settings(kind: Kind) -> LeaderSettings:
    return LeaderSettings(
        replica=kind.name,
        lease_lifetime=timedelta(hours=1),  # a test takes it away where it should lapse
        renew_every=kind.renew_every,
        sweep_every=timedelta(hours=1),
    )


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


def _coded(answer: Json) -> tuple[str, list[str]]:
    return answer["Code"], answer["Reasons"]
