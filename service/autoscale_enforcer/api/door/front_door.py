"""One port, open: takes connections in as far as there are places, and lets them out in the end.

It accepts by itself instead of leaving that to asyncio, which would accept without a limit and
begin TLS before anybody could say no.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from aiohttp import web

from autoscale_enforcer.api.door.bodies import Bodies
from autoscale_enforcer.api.door.client import Client
from autoscale_enforcer.api.door.connection import Connection
from autoscale_enforcer.api.door.places import Place, Places
from autoscale_enforcer.api.door.plain_connection import Plain, PlainConnection
from autoscale_enforcer.api.door.server_settings import (
    BACKLOG,
    WRITE_SECONDS,
    connection_settings,
    runner_settings,
)
from autoscale_enforcer.api.door.turns import Turns
from autoscale_enforcer.config.settings import LimitSettings
from autoscale_enforcer.errors import ConfigError

log = logging.getLogger(__name__)

REST_SECONDS = 0.2
"""Without file descriptors: how long nothing is accepted."""

GREETING_SECONDS = 0.1
"""For requests that were on their way when a drain began. Ended sooner, their connection would be
reset, and whoever sent them could not know what became of them."""

LOOK_SECONDS = 0.02
"""Between looks whether a drain is over."""

_OUT_OF_MEANS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Tls = Callable[[], ssl.SSLContext]
"""The context for the next connection: certificates change while we run."""


@dataclass(slots=True, eq=False)
class FrontDoor:
    """One port. Open it, drain it, close it."""

    app: web.Application
    limits: LimitSettings
    tls: Tls | None = None
    plain: Plain | None = None
    """How plain requests are answered without the application, the same as by it."""
    places: Places = field(init=False)
    turns: Turns = field(init=False)
    bodies: Bodies = field(init=False)
    _runner: web.AppRunner = field(init=False)
    _server: web.Server = field(init=False)
    _listeners: list[socket.socket] = field(default_factory=list)
    _connections: set[Client] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.places = Places(self.limits.connections)
        self.turns = Turns(self.limits.requests)
        self.bodies = Bodies(self.limits.extender_body)
        self._runner = web.AppRunner(self.app, **runner_settings())

    async def start(self) -> None:
        """Make it ready to listen."""
        await self._runner.setup()
        server = self._runner.server
        assert server is not None  # noqa: S101 - it is there after setup
        self._server = server
        self._keep(self._watch())

    async def listen(self, host: str, port: int, *, reuse_port: bool) -> int:
        """The port that it answers on from now, beside others; 0 takes any free one.

        Raises ConfigError where it cannot be had.
        """
        try:
            for family, address in await _addresses(host):
                listener = _bound(family, address, port, reuse_port=reuse_port)
                self._listeners.append(listener)
                port = listener.getsockname()[1]
                self._hear(listener)
        except OSError as error:
            raise ConfigError([f"listen: {host}:{port}: {error.strerror}"]) from error
        return port

    def stop_listening(self) -> None:
        """Take nobody in any more but those who are at the door already."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)
            for _ in range(BACKLOG):
                if not self._accept_one(listener):
                    break
            listener.close()
        self._listeners.clear()

    async def drain(self) -> None:
        """Returns when nothing is in flight; idle connections are ended within moments."""
        self._tell_to_leave()
        await asyncio.sleep(GREETING_SECONDS)
        while self.turns.count or self._connections:
            self._tell_to_leave()
            for connection in [each for each in self._connections if not each.is_answering]:
                connection.force_close()
            await asyncio.sleep(LOOK_SECONDS)

    def _tell_to_leave(self) -> None:
        for connection in self._connections:
            connection.is_leaving = True

    async def close(self) -> None:
        """End everything. Safe to repeat, and without a drain."""
        self.stop_listening()
        await self._runner.cleanup()
        for connection in list(self._connections):
            connection.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Coming in

    def _hear(self, listener: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(listener, self._accept_one, listener)

    def _accept_one(self, listener: socket.socket) -> bool:
        """One from the queue; False where it is empty, or must wait.

        One in each round of the event loop: those who wait cost nothing where they are, and whoever
        is connected already is not held up by a flood of newcomers.
        """
        is_full = self.places.is_full
        if is_full and self.places.make_room():
            return False  # and in the next round there is a place
        try:
            client, address = listener.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if error.errno in _OUT_OF_MEANS:
                self._rest(listener, error)
                return False
            return True  # it hung up before it was taken in
        if is_full:
            client.close()
            self.places.refused += 1
            return True
        place = self.places.take(address[0])
        client.settimeout(0)
        task = self._keep(self._serve(client, place))
        place.give_up = partial(_cancel, task)
        return True

    def _rest(self, listener: socket.socket, error: OSError) -> None:
        log.error("cannot accept connections: %s", error.strerror)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(REST_SECONDS, self._hear_again, listener)

    def _hear_again(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._hear(listener)

    async def _serve(self, client: socket.socket, place: Place) -> None:
        """Hand the socket over to its connection, through the TLS handshake where there is one."""
        within = self.limits.read_timeout.total_seconds()
        limits: dict[str, Any] = {}
        is_handed_over = False
        try:
            if self.tls:
                limits = {"ssl": self.tls(), "ssl_handshake_timeout": within}
                limits["ssl_shutdown_timeout"] = WRITE_SECONDS
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(partial(self._protocol, place), client, **limits)
            is_handed_over = True
        except (OSError, asyncio.CancelledError):
            pass  # no TLS, not ours, or given up meanwhile
        finally:
            if not is_handed_over:
                client.close()
                self.places.leave(place)

    def _protocol(self, place: Place) -> asyncio.Protocol:
        if self.plain is None:
            return self._connection(place)
        return PlainConnection(
            self.plain,
            place=place,
            places=self.places,
            turns=self.turns,
            limits=self.limits,
            there=self._connections,
            tasks=self._tasks,
            successor=partial(self._connection, place),
        )

    def _connection(self, place: Place) -> Connection:
        return Connection(
            self._server,
            place=place,
            places=self.places,
            turns=self.turns,
            bodies=self.bodies,
            head_limit=self.limits.header,
            there=self._connections,
            **connection_settings(self.limits),
        )

    def _keep(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watch(self) -> None:
        """End the connections whose clients have owed us something for too long."""
        within = self.limits.read_timeout
        while True:
            await asyncio.sleep(min(within / 4, timedelta(seconds=1)).total_seconds())
            before = asyncio.get_running_loop().time() - within.total_seconds()
            for connection in [each for each in self._connections if each.owes_since(before)]:
                connection.abort()


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


async def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _bound(
    family: socket.AddressFamily, address: str, port: int, *, reuse_port: bool
) -> socket.socket:
    listener = socket.create_server(
        (address, port), family=family, backlog=BACKLOG, reuse_port=reuse_port
    )
    listener.settimeout(0)
    return listener
