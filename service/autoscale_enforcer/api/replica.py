"""One replica, put together: settings in, three front doors and the background work out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from autoscale_enforcer.api.admin import admin_app
from autoscale_enforcer.api.agents import AgentDesk, agent_app
from autoscale_enforcer.api.extender.app import extender_app
from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.api.metrics import Metrics
from autoscale_enforcer.api.order_desk import OrderDesk
from autoscale_enforcer.background import Background
from autoscale_enforcer.cluster.binder import Binder
from autoscale_enforcer.cluster.chores import while_leading
from autoscale_enforcer.cluster.leader import Leader, LeaderSettings
from autoscale_enforcer.cluster.learner import NodeLearner
from autoscale_enforcer.cluster.opening import OpenCluster, open_cluster
from autoscale_enforcer.cluster.release import Releaser
from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.cluster.sweep import Sweeper
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.config.settings import (
    ListenSettings,
    OwnPorts,
    Settings,
    read_secret,
    read_token,
)
from autoscale_enforcer.errors import ConfigError, LedgerUnavailable
from autoscale_enforcer.ledger.calls import LedgerSettings
from autoscale_enforcer.ledger.connection import ConnectionSettings
from autoscale_enforcer.ledger.ledger import Ledger

log = logging.getLogger(__name__)

DRAIN_SECONDS = 8.0
"""For work in flight after a stop: below the 10 s in which a replica is to be gone."""

LINGER_SECONDS = 0.5
"""How long a refused client may go on sending. Closed at once, it would see a reset instead of the
refusal; aiohttp's own 10 s would read megabytes that nobody wants."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that are really bound."""

    extender: int
    agent: int
    admin: int
    own: OwnPorts | None


def ledger_settings(settings: Settings) -> LedgerSettings:
    """The part of the settings that the ledger needs."""
    redis, holds = settings.redis, settings.holds
    password = read_secret(redis.password_file).reveal() if redis.password_file else None
    return LedgerSettings(
        connection=ConnectionSettings(
            url=redis.url,
            socket_timeout=redis.socket_timeout.total_seconds(),
            max_connections=redis.max_connections,
            password=password,
        ),
        cluster=redis.cluster_name,
        hold_lifetime=holds.lifetime,
        journal_length=holds.journal_length,
        call_budget=redis.call_budget,
        settle_after=holds.settle_after,
    )


async def run_replica(
    settings: Settings, *, on_ready: Callable[[Ports], None], stop: asyncio.Event
) -> None:
    """Serve until `stop` is set; returns when everything is closed.

    `on_ready` is called once the ledger is built and every port answers. Raises ConfigError
    before anything is opened where a file cannot be used.
    """
    if settings.access.admin_token_file:
        read_token(settings.access.admin_token_file)
    config = LiveConfig()
    async with AsyncExitStack() as stack:
        ledger = Ledger.open(ledger_settings(settings))
        stack.push_async_callback(ledger.close)
        background = await stack.enter_async_context(Background())
        cluster = await open_cluster(stack, background, settings, ledger, config)
        means = Means.of(settings, ledger, cluster.source, config)
        stack.push_async_callback(means.learner.close)
        leader = _leader(settings, means, cluster)
        stack.push_async_callback(leader.resign)
        # Before it resigns the leader must have stopped, or its next turn would lead again.
        stack.push_async_callback(background.stop)
        background.start("leader", leader.run)
        for chore in cluster.chores:
            work = while_leading(lambda: leader.is_leading, chore.do, every=chore.every)
            background.start(chore.name, work)
        metrics = Metrics()
        metrics.watch(
            is_leading=lambda: leader.is_leading,
            config=config,
            background=background,
            readings=cluster.upkeep.readings,
        )
        desk, orders = means.desk(), means.order_desk(cluster)
        # After the last answer, and while there is still a ledger and a cluster.
        within = DRAIN_SECONDS - settings.limits.answer_within.total_seconds()
        stack.push_async_callback(desk.finish, within)
        ports = await _listen(stack, apps_of(means, desk, orders, metrics, stop), settings)
        await _until_built(ledger, stop)
        if not stop.is_set():
            on_ready(ports)
        await stop.wait()


@dataclass(frozen=True, slots=True)
class Means:
    """What the front doors of one replica share."""

    settings: Settings
    ledger: Ledger
    source: ClusterSource
    binder: Binder
    learner: NodeLearner
    config: LiveConfig

    @classmethod
    def of(
        cls, settings: Settings, ledger: Ledger, source: ClusterSource, config: LiveConfig
    ) -> Means:
        """Over this ledger and this cluster."""
        binder = Binder(ledger, source, config)
        return cls(settings, ledger, source, binder, NodeLearner(ledger, source, config), config)

    def order_desk(self, cluster: OpenCluster) -> OrderDesk:
        """What carries out operators' orders."""
        return OrderDesk(
            ledger=self.ledger,
            releaser=Releaser(self.ledger, self.source, self.binder),
            differences=cluster.differences,
            replica=self.settings.replica.name,
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
            answer_within=self.settings.limits.answer_within,
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


@dataclass(frozen=True, slots=True)
class Apps:
    """One application a port."""

    extender: web.Application
    agent: web.Application
    admin: web.Application


def apps_of(
    means: Means, desk: Desk, orders: OrderDesk, metrics: Metrics, stop: asyncio.Event
) -> Apps:
    """The front doors; readiness ends when `stop` is set."""
    settings = means.settings
    name = settings.replica.name
    agents = AgentDesk(
        ledger=means.ledger,
        source=means.source,
        config=means.config,
        compute_unit=settings.replica.compute_unit,
        replica=name,
    )
    return Apps(
        extender=extender_app(desk, settings.limits, partial(metrics.count, "extender")),
        agent=agent_app(agents, settings.limits, partial(metrics.count, "agents")),
        admin=admin_app(
            means.ledger,
            replica=name,
            is_stopping=stop.is_set,
            config=means.config,
            metrics=metrics,
            orders=orders,
            token_file=settings.access.admin_token_file,
        ),
    )


async def _listen(stack: AsyncExitStack, apps: Apps, settings: Settings) -> Ports:
    listen, own = settings.listen, settings.listen.own_ports
    shared = (listen.extender_port, listen.agent_port, listen.admin_port)
    owned = (own.extender, own.agent, own.admin) if own else (None, None, None)
    bound: list[int] = []
    bound_own: list[int] = []
    for app, port, own_port in zip(
        (apps.extender, apps.agent, apps.admin), shared, owned, strict=True
    ):
        runner = _runner(app, settings)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        bound.append(await _open(runner, listen, port, reuse_port=listen.reuse_port))
        if own_port is not None:
            bound_own.append(await _open(runner, listen, own_port, reuse_port=listen.reuse_port))
    extender, agent, admin = bound
    return Ports(extender, agent, admin, _own_ports(*bound_own) if own else None)


def _own_ports(extender: int, agent: int, admin: int) -> OwnPorts:
    return OwnPorts(extender=extender, agent=agent, admin=admin)


def _runner(app: web.Application, settings: Settings) -> web.AppRunner:
    limits = settings.limits
    return web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        keepalive_timeout=limits.keep_alive.total_seconds(),
        max_line_size=limits.header,
        max_field_size=limits.header,
        lingering_time=LINGER_SECONDS,
        shutdown_timeout=DRAIN_SECONDS,
    )


async def _open(
    runner: web.AppRunner, listen: ListenSettings, port: int, *, reuse_port: bool
) -> int:
    try:
        site = web.TCPSite(runner, listen.host, port, reuse_port=reuse_port, backlog=1024)
        await site.start()
    except OSError as error:
        raise ConfigError([f"listen: {listen.host}:{port}: {error.strerror}"]) from error
    return site.port


async def _until_built(ledger: Ledger, stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            if (await ledger.look()).state != "UNBUILT":
                return
        except LedgerUnavailable as error:
            log.warning("waiting for Redis: %s", error)
        await asyncio.sleep(0.1)
