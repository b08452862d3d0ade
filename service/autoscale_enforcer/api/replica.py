"""One replica, put together: settings in, three front doors and the background work out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from autoscale_enforcer.api.admin import admin_app
from autoscale_enforcer.api.agents import AgentDesk, agent_app
from autoscale_enforcer.api.extender.app import extender_app
from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.background import Background
from autoscale_enforcer.cluster.binder import Binder
from autoscale_enforcer.cluster.file_source import FileSource
from autoscale_enforcer.cluster.leader import Leader, LeaderSettings
from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.config.scheduler_config import (
    DEFAULT_CONFIG,
    SchedulerConfig,
    parse_scheduler_config,
)
from autoscale_enforcer.config.settings import ListenSettings, OwnPorts, Settings, read_secret
from autoscale_enforcer.errors import ConfigError, LedgerUnavailable, ObjectError
from autoscale_enforcer.ledger.connection import ConnectionSettings
from autoscale_enforcer.ledger.ledger import Ledger, LedgerSettings
from autoscale_enforcer.objects.listing import ClusterListing, read_cluster

log = logging.getLogger(__name__)

DRAIN_SECONDS = 8.0
"""For work in flight after a stop: below the 10 s in which a replica is to be gone."""


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
    listing = _read_listing(settings)
    config, config_version = _read_config(settings.replica.config)
    async with AsyncExitStack() as stack:
        ledger = Ledger.open(ledger_settings(settings))
        stack.push_async_callback(ledger.close)
        source = FileSource(listing, ledger, without_pods=settings.replica.without_pods)
        binder = Binder(ledger, source, ignored_namespaces=config.ignored_namespaces)
        leader = Leader(
            ledger,
            source,
            binder,
            config=config,
            settings=LeaderSettings(
                replica=settings.replica.name,
                lease_lifetime=settings.lease.lifetime,
                renew_every=settings.lease.renew_every,
                sweep_every=settings.holds.sweep_every,
                config_version=config_version,
            ),
        )
        stack.push_async_callback(leader.resign)
        background = await stack.enter_async_context(Background())
        background.start("leader", leader.run)
        apps = _apps(settings, ledger, source, binder, config, stop)
        ports = await _listen(stack, apps, settings)
        await _until_built(ledger, stop)
        if not stop.is_set():
            on_ready(ports)
        await stop.wait()


def _read_listing(settings: Settings) -> ClusterListing:
    path = Path((settings.replica.cluster or "").removeprefix("file:"))
    if not settings.replica.cluster:
        raise ConfigError(["replica.cluster: is required: file:PATH"])
    try:
        listing = read_cluster(path.read_bytes())
    except OSError as error:
        raise ConfigError([f"replica.cluster: {path}: {error.strerror}"]) from error
    except ObjectError as error:
        raise ConfigError([f"replica.cluster: {path}: {error}"]) from error
    for bad in listing.bad:
        log.warning("cluster file: %s", bad.describe())
    return listing


def _read_config(path: Path | None) -> tuple[SchedulerConfig, str]:
    """The config and its version: the file's time, the same at every replica that has the file."""
    if path is None:
        return DEFAULT_CONFIG, ""
    try:
        config = parse_scheduler_config(path.read_bytes())
        version = str(path.stat().st_mtime_ns)
    except OSError as error:
        raise ConfigError([f"config: {path}: {error.strerror}"]) from error
    if config.unused_fields:
        log.info("config: without meaning here: %s", ", ".join(config.unused_fields))
    return config, version


@dataclass(frozen=True, slots=True)
class _Apps:
    extender: web.Application
    agent: web.Application
    admin: web.Application


def _apps(
    settings: Settings,
    ledger: Ledger,
    source: ClusterSource,
    binder: Binder,
    config: SchedulerConfig,
    stop: asyncio.Event,
) -> _Apps:
    replica = settings.replica.name
    desk = Desk(ledger=ledger, source=source, binder=binder, config=config, replica=replica)
    agents = AgentDesk(
        ledger=ledger,
        source=source,
        config=config,
        compute_unit=settings.replica.compute_unit,
        replica=replica,
    )
    return _Apps(
        extender=extender_app(desk, settings.limits),
        agent=agent_app(agents, settings.limits),
        admin=admin_app(ledger, replica=replica, is_stopping=stop.is_set),
    )


async def _listen(stack: AsyncExitStack, apps: _Apps, settings: Settings) -> Ports:
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
            bound_own.append(await _open(runner, listen, own_port, reuse_port=False))
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
