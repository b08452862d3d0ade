"""A replica over the fake API server and a real ledger, with the leader that follows that cluster.

`lead` is one turn of the leader, so that a test decides when it builds and compares; what its
watches hear is booked in the background, so a test waits for what the books then say.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from autoscale_enforcer.cluster.kubernetes import config_map
from autoscale_enforcer.cluster.kubernetes.budget import BudgetSettings, ReadBudget
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.reconciler import Reconciler, ReconcilerSettings
from autoscale_enforcer.cluster.kubernetes.source import KubernetesSource
from autoscale_enforcer.cluster.kubernetes.transport import ApiSettings
from autoscale_enforcer.cluster.leader import Leader, LeaderSettings
from autoscale_enforcer.cluster.sweep import Sweeper
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.ledger.keys import Keys
from tests.support.fake_api.samples import Json, node
from tests.support.fake_api.server import FakeApi
from tests.support.reflecting import QUICK
from tests.support.replica import Kind, Replica, running, until

CLUSTER_UID = "uid-of-kube-system"
FOLLOWING = ReconcilerSettings(watches=QUICK, news_takes=timedelta(milliseconds=20))


class Clock:
    """Time as a test has it pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveKind:
    """What is unlike the usual."""

    name: str = "r1"
    following: ReconcilerSettings = FOLLOWING
    limits: ApiSettings = field(default_factory=ApiSettings)
    reads: BudgetSettings = field(default_factory=BudgetSettings)
    bind_budget: timedelta = timedelta(0)
    lease: timedelta = timedelta(hours=1)  # a test takes it away where it should lapse
    clock: Callable[[], float] | None = None
    replica: dict[str, Any] = field(default_factory=dict)
    """Words of `Kind`."""


@dataclass(slots=True, repr=False)
class Live:
    """One replica and its leader."""

    api: FakeApi
    client: KubeApi
    front: Replica
    source: KubernetesSource
    reconciler: Reconciler
    leader: Leader

    @property
    def config(self) -> LiveConfig:
        return self.front.desk.config

    # What its leader does

    async def lead(self) -> None:
        """One turn; what the lists say is in the books afterwards."""
        await self.leader._turn()

    async def compare(self) -> None:
        """One turn that lists everything."""
        self.leader._has_caught_up = False
        await self.lead()

    async def drained(self) -> None:
        """What has been heard is in the books."""
        await self.reconciler.pump.drained()

    # What the books say

    async def where(self, uid: str) -> str:
        return await self.front.where(uid)

    async def reserved(self, name: str = "n1") -> tuple[int, int]:
        return await self.front.reserved(name)

    async def amount(self, uid: str) -> tuple[int, int]:
        """Millicores and MiB that a pod holds."""
        row = await self.front.row(uid)
        return (row.cpu, row.mem >> 20) if row and row.holds else (0, 0)

    async def journal(self) -> list[tuple[str, str, bytes]]:
        """What, whom and why, oldest first."""
        entries = await self.front.raw.xrange(Keys("default").key("journal"))
        return [
            (each[b"what"].decode(), each[b"uid"].decode(), each[b"context"]) for _, each in entries
        ]

    async def until(self, read: Callable[[], Awaitable[Any]], wanted: Any) -> None:
        """Wait until the books say so; fails with what they say when the test's time is over."""
        found: Any = None

        async def is_so() -> bool:
            nonlocal found
            found = await read()
            return bool(found == wanted)

        try:
            await until(is_so)
        except BaseException as error:
            error.add_note(f"still {found!r}, not {wanted!r}")
            raise

    async def until_at(self, uid: str, place: str) -> None:
        await self.until(lambda: self.where(uid), place)

    async def until_reserved(self, cpu: int, mem: int, name: str = "n1") -> None:
        await self.until(lambda: self.reserved(name), (cpu, mem))

    async def until_amount(self, uid: str, cpu: int, mem: int) -> None:
        await self.until(lambda: self.amount(uid), (cpu, mem))

    async def verify(self) -> list[Any]:
        return await self.front.verify()


class StartLive(Protocol):
    async def __call__(self, **kind: Any) -> Live: ...


def cluster(api: FakeApi) -> FakeApi:
    """n1 of the field reports, and the namespace by which a cluster is known."""
    api.store.create("namespaces", {"metadata": {"name": "kube-system", "uid": CLUSTER_UID}})
    api.store.create("nodes", node("n1", uid="uid-n1"))
    return api


def with_config(api: FakeApi) -> None:
    """A scheduler config, without which a replica in a process of its own gives up."""
    named = {"name": config_map.NAME, "namespace": config_map.NAMESPACE}
    data = {config_map.KEYS[0]: json.dumps({"scoring": {}, "schedulerName": "s1"})}
    api.store.create("configmaps", {"metadata": named, "data": data})


@asynccontextmanager
async def living(api: FakeApi, url: str, raw: Any, kind: LiveKind) -> AsyncIterator[Live]:
    """A replica that answers and does not lead yet; nothing of it is left afterwards."""
    async with AsyncExitStack() as stack:
        client = KubeApi(api.access(), kind.limits, ReadBudget(kind.reads))
        await stack.enter_async_context(client)
        source = KubernetesSource(client)
        front = await stack.enter_async_context(
            running(url, raw, source, Kind(name=kind.name, **kind.replica))
        )
        reconciler = Reconciler(
            client,
            source,
            front.ledger,
            front.desk.config,
            replica=kind.name,
            settings=kind.following,
        )
        settings = LeaderSettings(
            replica=kind.name,
            lease_lifetime=kind.lease,
            renew_every=timedelta(milliseconds=20),
            sweep_every=timedelta(seconds=5) if kind.clock else timedelta(hours=1),
            bind_budget=kind.bind_budget,
        )
        leader = Leader(
            front.ledger,
            reconciler,
            Sweeper(front.ledger, source, front.binder, replica=kind.name),
            settings=settings,
            **({"clock": kind.clock} if kind.clock else {}),
        )
        stack.push_async_callback(leader.resign)
        yield Live(api, client, front, source, reconciler, leader)


@asynccontextmanager
async def starting(api: FakeApi, url: str, raw: Any) -> AsyncIterator[StartLive]:
    """`await start(**kind)`: one more replica over the same ledger and cluster."""
    async with AsyncExitStack() as stack:

        async def start(**kind: Any) -> Live:
            return await stack.enter_async_context(living(api, url, raw, LiveKind(**kind)))

        yield start


def at(**spec: Any) -> Callable[[Json], None]:
    """For `store.update`: the object with these fields of its spec."""
    return lambda found: found["spec"].update(spec)


def phase(name: str) -> Callable[[Json], None]:
    """For `store.update`: the pod in that phase."""
    return lambda found: found["status"].update(phase=name)


def metadata(**given: Any) -> Callable[[Json], None]:
    """For `store.update`: the object with these fields of its metadata."""
    return lambda found: found["metadata"].update(given)
