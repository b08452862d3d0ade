"""The three ports of one replica as its settings say: where, with which TLS, and for whom."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal

from aiohttp import web
from aiohttp.typedefs import Middleware

from autoscale_enforcer.api.callers import Reviews, only_known_callers
from autoscale_enforcer.api.door.descriptors import allow_descriptors
from autoscale_enforcer.api.door.front_door import FrontDoor, Tls
from autoscale_enforcer.api.door.plain_connection import Plain
from autoscale_enforcer.api.door.tls import server_tls
from autoscale_enforcer.config.settings import OwnPorts, Settings

log = logging.getLogger(__name__)

PortName = Literal["extender", "agent", "admin"]
NAMES: tuple[PortName, ...] = ("extender", "agent", "admin")


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that are really bound."""

    extender: int
    agent: int
    admin: int
    own: OwnPorts | None


@dataclass(frozen=True, slots=True)
class OpenPort:
    """One that answers."""

    door: FrontDoor
    number: int
    own: int | None
    """Another number for the same, which no other replica has."""


@dataclass(frozen=True, slots=True)
class PortOpener:
    """Opens ports, each at most once."""

    settings: Settings
    tls: dict[PortName, Tls | None]

    @classmethod
    def of(cls, settings: Settings) -> PortOpener:
        """Raises ConfigError where a certificate, a key or a CA cannot be used."""
        allow_descriptors(len(NAMES) * settings.limits.connections)
        return cls(settings, {name: _tls(settings, name) for name in NAMES})

    async def open(
        self,
        stack: AsyncExitStack,
        name: PortName,
        app: web.Application,
        plain: Plain | None = None,
    ) -> OpenPort:
        """The port, open until the stack closes it; without `plain` where callers are checked."""
        listen = self.settings.listen
        door = FrontDoor(app, self.settings.limits, self.tls[name], plain)
        await door.start()
        stack.push_async_callback(door.close)
        wanted: int = getattr(listen, f"{name}_port")
        number = await door.listen(listen.host, wanted, reuse_port=listen.reuse_port)
        log.info("the %s port is %d", name, number)
        own: int | None = getattr(listen.own_ports, name, None)
        if own is not None:
            own = await door.listen(listen.host, own, reuse_port=listen.reuse_port)
        return OpenPort(door, number, own)

    def checks(self, name: PortName, reviews: Reviews | None = None) -> list[Middleware]:
        """What must let a caller of that port through; nothing where anybody may call."""
        access = self.settings.access
        names = {"extender": access.extender_names, "agent": access.agent_names}.get(name, ())
        if not names and reviews is None:
            return []
        return [only_known_callers(names, reviews, within=self.settings.limits.answer_within)]


def bound_ports(extender: OpenPort, agent: OpenPort, admin: OpenPort) -> Ports:
    """Their numbers."""
    own = None
    if extender.own is not None and agent.own is not None and admin.own is not None:
        own = OwnPorts(extender=extender.own, agent=agent.own, admin=admin.own)
    return Ports(extender.number, agent.number, admin.number, own)


def _tls(settings: Settings, name: PortName) -> Tls | None:
    tls, access = settings.tls, settings.access
    if not (tls.cert_file and tls.key_file and tls.speaks(name)):
        return None
    names = {"extender": access.extender_names, "agent": access.agent_names}.get(name, ())
    # Who has a token instead shows no certificate.
    is_optional = name == "agent" and bool(access.agent_accounts)
    client_ca = tls.client_ca_file if names else None
    return server_tls(tls.cert_file, tls.key_file, client_ca=client_ca, is_optional=is_optional)
