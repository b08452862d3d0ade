"""One replica, put together: settings in, three front doors and the background work out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from autoscale_enforcer.api.admin import Health, admin_app
from autoscale_enforcer.api.agents import AgentDesk, agent_port
from autoscale_enforcer.api.door.front_door import FrontDoor
from autoscale_enforcer.api.extender.app import extender_app
from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.api.metrics import Metrics
from autoscale_enforcer.api.order_desk import OrderDesk
from autoscale_enforcer.api.ports import PortOpener, Ports, bound_ports
from autoscale_enforcer.background import Background
from autoscale_enforcer.cluster.binder import Binder
from autoscale_enforcer.cluster.chores import while_leading
from autoscale_enforcer.cluster.leader import Leader, LeaderSettings
from autoscale_enforcer.cluster.learner import NodeLearner, PodLearner
from autoscale_enforcer.cluster.opening import KUBERNETES, OpenCluster, open_cluster
from autoscale_enforcer.cluster.release import Releaser
from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.cluster.sweep import Sweeper
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.config.settings import (
    Settings,
    find_token,
    read_secret,
)
from autoscale_enforcer.errors import ConfigError, LedgerUnavailable, LedgerUnfit
from autoscale_enforcer.ledger.calls import LedgerSettings
from autoscale_enforcer.ledger.connection import ConnectionSettings
from autoscale_enforcer.ledger.durability import Durability, Waiting
from autoscale_enforcer.ledger.exchange import Guard
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.watched_files import Watched

log = logging.getLogger(__name__)

DRAIN_SECONDS = 5.5
"""For work in flight after a stop: longer than the 5 s for which kube-scheduler waits, and so short
that a replica is gone within 10 s whatever else is slow."""


def ledger_settings(settings: Settings) -> LedgerSettings:
    """The part of the settings that the ledger needs."""
    redis, holds = settings.redis, settings.holds
    return LedgerSettings(
        connection=ConnectionSettings(
            url=redis.url,
            socket_timeout=redis.socket_timeout.total_seconds(),
            max_connections=redis.max_connections,
            password=_password_of(redis.password_file),
            sentinel_user=redis.sentinel_user,
            sentinel_password=_password_of(redis.sentinel_password_file),
            ca_file=redis.ca_file,
            cert_file=redis.cert_file,
            key_file=redis.key_file,
        ),
        waiting=Waiting(
            durability=Durability(redis.durability),
            replicas=redis.wait_replicas,
            timeout=redis.wait_timeout,
        ),
        cluster=redis.cluster_name,
        hold_lifetime=holds.lifetime,
        journal_length=holds.journal_length,
        call_budget=redis.call_budget,
        keeps_whole_facts=settings.replica.cluster != KUBERNETES,
        settle_after=holds.settle_after,
    )


def _password_of(file: Path | None) -> Callable[[], str] | None:
    if file is None:
        return None
    watched = Watched(lambda: read_secret(file), file)
    return lambda: watched.current().reveal()


async def run_replica(
    settings: Settings, *, on_ready: Callable[[Ports], None], stop: asyncio.Event
) -> None:
    """Serve until `stop` is set; returns when everything is closed.

    `on_ready` is called once the ledger is built and every port answers. Raises ConfigError
    before anything is opened where a file cannot be used.
    """
    token_file = settings.access.admin_token_file
    if token_file and find_token(token_file) is None:
        log.warning("nobody changes anything over the admin port: there is no %s yet", token_file)
    opener = PortOpener.of(settings)
    async with AsyncExitStack() as stack:
        opening = asyncio.ensure_future(_open_replica(stack, opener, stop))
        await _first_of(opening, stop)
        if not opening.done():
            await _cancel(opening)
            return
        replica = opening.result()
        on_ready(replica.ports)
        await stop.wait()
        await replica.drain()


@dataclass(frozen=True, slots=True)
class _Replica:
    """One that answers."""

    ports: Ports
    doors: tuple[FrontDoor, ...]
    """All but the admin port, whose probes answer to the end."""
    desk: Desk

    async def drain(self) -> None:
        """What was begun is ended, as far as there is time."""
        for door in self.doors:
            door.stop_listening()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await asyncio.gather(*(door.drain() for door in self.doors))
                await self.desk.finish(DRAIN_SECONDS)
        await asyncio.gather(*(door.close() for door in self.doors))


async def _open_replica(stack: AsyncExitStack, opener: PortOpener, stop: asyncio.Event) -> _Replica:
    """A replica whose ledger is built and whose ports answer; the stack closes what it opened."""
    settings = opener.settings
    config, metrics = LiveConfig(), Metrics()
    ledger = Ledger.open(ledger_settings(settings))
    stack.push_async_callback(ledger.close)
    built = asyncio.Event()
    health = Health(is_stopping=stop.is_set, is_starting=lambda: not built.is_set())
    orders = OrderDesk(ledger=ledger, replica=settings.replica.name)
    # First of all, for a replica is alive while it waits for Redis or the API server.
    people = admin_app(
        ledger,
        replica=settings.replica.name,
        health=health,
        config=config,
        metrics=metrics,
        orders=orders,
        token_file=settings.access.admin_token_file,
    )
    admin = await opener.open(stack, "admin", people)
    metrics.watch_port("admin", admin.door)
    with contextlib.suppress(LedgerUnavailable):
        _refuse_newer(await ledger.look())
    background = await stack.enter_async_context(Background())
    cluster = await open_cluster(stack, background, settings, ledger, config)
    means = Means.of(settings, ledger, cluster.source, config)
    stack.push_async_callback(means.learner.close)
    stack.push_async_callback(means.pod_learner.close)
    orders.releaser = Releaser(ledger, cluster.source, means.binder)
    orders.differences = cluster.differences
    leader = _leader(settings, means, cluster)
    stack.push_async_callback(leader.resign)
    # Before it resigns the leader must have stopped, or its next turn would lead again.
    stack.push_async_callback(background.stop)
    background.start("leader", leader.run)
    for chore in cluster.chores:
        work = while_leading(lambda: leader.is_leading, chore.do, every=chore.every)
        background.start(chore.name, work)
    metrics.watch(
        is_leading=lambda: leader.is_leading,
        config=config,
        background=background,
        readings=cluster.upkeep.readings,
    )
    metrics.watch_redis(ledger.pipeline.noticed)
    desk = means.desk()
    schedulers = extender_app(
        desk,
        settings.limits,
        partial(metrics.count, "extender"),
        checks=opener.checks("extender"),
    )
    agents = agent_port(
        means.agent_desk(),
        settings.limits,
        partial(metrics.count, "agents"),
        checks=opener.checks("agent", cluster.reviews),
    )
    extender = await opener.open(stack, "extender", schedulers)
    agent = await opener.open(stack, "agent", agents.app, agents.plain)
    metrics.watch_port("extender", extender.door)
    metrics.watch_port("agents", agent.door)
    await _until_built(ledger)
    built.set()
    ports = bound_ports(extender, agent, admin)
    return _Replica(ports, (extender.door, agent.door), desk)


async def _first_of(work: asyncio.Future[Any], stop: asyncio.Event) -> None:
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await _cancel(stopping)


async def _cancel(work: asyncio.Future[Any]) -> None:
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Means:
    """What the front doors of one replica share."""

    settings: Settings
    ledger: Ledger
    source: ClusterSource
    binder: Binder
    learner: NodeLearner
    pod_learner: PodLearner
    config: LiveConfig

    @classmethod
    def of(
        cls, settings: Settings, ledger: Ledger, source: ClusterSource, config: LiveConfig
    ) -> Means:
        """Over this ledger and this cluster."""
        return cls(
            settings,
            ledger,
            source,
            Binder(ledger, source, config),
            NodeLearner(ledger, source, config),
            PodLearner(ledger, source, config),
            config,
        )

    def desk(self) -> Desk:
        """What answers kube-scheduler."""
        return Desk(
            ledger=self.ledger,
            source=self.source,
            binder=self.binder,
            learner=self.learner,
            config=self.config,
            replica=self.settings.replica.name,
            limits=self.settings.limits,
        )

    def agent_desk(self) -> AgentDesk:
        """What answers agents."""
        return AgentDesk(
            ledger=self.ledger,
            learner=self.pod_learner,
            config=self.config,
            compute_unit=self.settings.replica.compute_unit,
            replica=self.settings.replica.name,
        )


def _leader(settings: Settings, means: Means, cluster: OpenCluster) -> Leader:
    name = settings.replica.name
    return Leader(
        means.ledger,
        cluster.upkeep,
        Sweeper(means.ledger, cluster.source, means.binder, replica=name),
        settings=LeaderSettings(
            replica=name,
            lease_lifetime=settings.lease.lifetime,
            renew_every=settings.lease.renew_every,
            sweep_every=settings.holds.sweep_every,
            bind_budget=cluster.bind_budget,
        ),
    )


def _refuse_newer(guard: Guard) -> None:
    """A release that knows no such rows ends, with words, and does not wait."""
    if guard.state == "NEWER":
        raise ConfigError([f"redis.url: {guard.why_not}"])


async def _until_built(ledger: Ledger) -> None:
    said = ""
    while True:
        try:
            guard = await ledger.look()
            _refuse_newer(guard)
            if guard.state not in ("UNBUILT", "OLDER"):
                return
        except LedgerUnfit as error:
            raise error.at_start() from error
        except LedgerUnavailable as error:
            if str(error) != said:
                said = str(error)
                log.warning("waiting for Redis: %s", said)
        await asyncio.sleep(0.1)
