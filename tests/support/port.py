"""One open port of our own, and raw connections to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from autoscale_enforcer.api.door.front_door import FrontDoor
from autoscale_enforcer.api.http import application, read_body, text_answer
from autoscale_enforcer.api.plain import plain_port
from autoscale_enforcer.config.settings import LimitSettings
from tests.support.replica import until

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LIVE = b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n"
"""Answered even while `may_answer` is not set."""
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


@dataclass(slots=True)
class Client:
    """A raw connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, sent: bytes) -> None:
        self.writer.write(sent)
        await self.writer.drain()

    async def reply(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        body = await self.reader.readexactly(int(headers.get("Content-Length", 0)))
        return int(first.split()[1]), headers, body

    async def ask(self, sent: bytes = GET) -> int:
        await self.send(sent)
        return (await self.reply())[0]

    async def is_closed(self) -> bool:
        """The other side has ended the connection, and nothing more came."""
        with contextlib.suppress(ConnectionResetError):
            return await self.reader.read(1) == b""
        return True


@dataclass(slots=True)
class Port:
    """An open port; what is asked there waits while `may_answer` is not set."""

    door: FrontDoor
    number: int
    clients: list[Client]
    may_answer: asyncio.Event
    asked: list[str] = field(default_factory=list)
    """Methods, or that it was asked plainly."""
    bodies: list[bytes] = field(default_factory=list)
    """Of what was asked plainly."""
    raises: dict[bytes, Exception] = field(default_factory=dict)
    """By body, in place of an answer to what was asked plainly."""

    async def connect(self, address: str = "127.0.0.1") -> Client:
        opened = await asyncio.open_connection("127.0.0.1", self.number, local_addr=(address, 0))
        self.clients.append(Client(*opened))
        return self.clients[-1]

    async def ask_in_vain(self, address: str = "127.0.0.1", *, sent: bytes = GET) -> Client:
        """A client whose request is being worked on."""
        before = len(self.asked)
        client = await self.connect(address)
        await client.send(sent)
        await until(lambda: is_so(len(self.asked) > before))
        return client

    async def holds(self, count: int) -> None:
        await until(lambda: is_so(self.door.places.taken == count))


async def is_so(so: bool) -> bool:
    return so


OpenPort = Callable[..., Awaitable[Port]]


@asynccontextmanager
async def ports(*, with_plain: bool) -> AsyncIterator[OpenPort]:
    """A way to open ports, which end with the block; `with_plain` they answer plain requests so."""
    async with AsyncExitStack() as stack:

        async def open_one(*, answers: bool = True, answer: str = "ok", **limits: Any) -> Port:
            app = application("r1")
            kind = LimitSettings(**limits)
            may_answer = asyncio.Event()
            if answers:
                may_answer.set()

            async def plainly(body: bytes) -> bytes:
                port.asked.append("plain")
                port.bodies.append(body)
                await may_answer.wait()
                if body in port.raises:
                    raise port.raises[body]
                return answer.encode()

            async def handle(request: web.Request) -> web.Response:
                if request.method == "POST":
                    await read_body(request, limit=kind.extender_body, within=kind.read_timeout)
                port.asked.append(request.method)
                await may_answer.wait()
                return text_answer(200, answer)

            async def live(_: web.Request) -> web.Response:
                return text_answer(200, "ok")

            app.router.add_route("*", "/", handle)
            app.router.add_get("/live", live)
            plain = plain_port("/", plainly, kind, replica="r1", count=None)
            door = FrontDoor(app, kind, plain=plain if with_plain else None)
            await door.start()
            number = await door.listen("127.0.0.1", 0, reuse_port=False)
            port = Port(door, number, [], may_answer)
            stack.push_async_callback(_close, port)
            return port

        yield open_one


async def _close(port: Port) -> None:
    port.may_answer.set()
    for client in port.clients:
        client.writer.close()
    await port.door.close()
    endings = [asyncio.ensure_future(client.writer.wait_closed()) for client in port.clients]
    await asyncio.gather(*endings, return_exceptions=True)
