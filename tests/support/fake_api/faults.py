"""What can go wrong with one request, to be scripted by tests."""

# ruff: noqa: ARG002 - each fault uses what it needs of the request
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from tests.support.fake_api.problems import status_body

GoOn = Callable[[], Awaitable[web.StreamResponse]]
"""Does what the request asks for."""


class Fault(Protocol):
    async def answer(self, request: web.Request, go_on: GoOn) -> web.StreamResponse: ...


@dataclass(frozen=True, slots=True)
class Refuse:
    """An error in place of an answer, such as 410 at the start of a watch, 429 or 500."""

    code: int
    reason: str = ""
    message: str = "scripted"
    retry_after: int | None = None

    async def answer(self, request: web.Request, go_on: GoOn) -> web.StreamResponse:
        body = status_body(self.code, self.reason, self.message)
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return web.Response(
            status=self.code, body=body, content_type="application/json", headers=headers
        )


@dataclass(frozen=True, slots=True)
class Lines:
    """200, these very lines, and an ordinary end; none: an empty body."""

    lines: tuple[bytes, ...] = ()

    async def answer(self, request: web.Request, go_on: GoOn) -> web.StreamResponse:
        response = await begin(request)
        for line in self.lines:
            await response.write(line + b"\n")
        return response


@dataclass(frozen=True, slots=True)
class Foreign:
    """The answer of something on the way that is no API server: a proxy's page, or its JSON."""

    code: int = 404
    body: str = "<html><body>404 not found</body></html>"

    async def answer(self, request: web.Request, go_on: GoOn) -> web.StreamResponse:
        kind = "text/html" if self.body.startswith("<") else "application/json"
        return web.Response(status=self.code, text=self.body, content_type=kind)


@dataclass(frozen=True, slots=True)
class Created:
    """201, this, and nothing is made."""

    body: bytes

    async def answer(self, request: web.Request, go_on: GoOn) -> web.StreamResponse:
        return web.Response(status=201, body=self.body, content_type="application/json")


def error_event(code: int = 410, reason: str = "Expired") -> Lines:
    """200, then an ERROR in the stream."""
    status = status_body(code, reason, "too old resource version: 1 (2)")
    return Lines((b'{"type":"ERROR","object":' + status + b"}",))


@dataclass(frozen=True, slots=True)
class Silence:
    """No byte more with TCP left open, until `over`; the head of the answer may still come."""

    with_head: bool = True
    over: asyncio.Event = field(default_factory=asyncio.Event)
    lines: tuple[bytes, ...] = ()
    """What comes before, with the head."""

    async def answer(self, request: web.Request, go_on: GoOn) -> web.StreamResponse:
        response: web.StreamResponse = web.Response(status=500)
        if self.with_head:
            response = await begin(request)
            await response.write(b"".join(line + b"\n" for line in self.lines))
        await self.over.wait()
        return response


@dataclass(frozen=True, slots=True)
class Cut:
    """200, this, and the connection is gone in the middle of it."""

    sent: bytes = b'{"type":"ADDED","object":{"metadata":{"name":"ha'

    async def answer(self, request: web.Request, go_on: GoOn) -> web.StreamResponse:
        response = await begin(request)
        await response.write(self.sent)
        if request.transport:
            request.transport.abort()
        return response


@dataclass(frozen=True, slots=True)
class SlowChunks:
    """The ordinary watch, a few bytes at a time."""

    size: int = 7
    wait: float = 0

    async def answer(self, request: web.Request, go_on: GoOn) -> web.StreamResponse:
        request[SLOW] = self
        return await go_on()

    async def write(self, response: web.StreamResponse, content: bytes) -> None:
        for start in range(0, len(content), self.size):
            await response.write(content[start : start + self.size])
            await asyncio.sleep(self.wait)


SLOW = web.RequestKey("slow", SlowChunks)


@dataclass(frozen=True, slots=True)
class Held:
    """The request waits, as on a slow way here, until `release`; then it is answered as always."""

    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request, go_on: GoOn) -> web.StreamResponse:
        self.arrived.set()
        await self.release.wait()
        return await go_on()


@dataclass(frozen=True, slots=True)
class DoneButUnanswered:
    """What was asked for is done, and the answer never comes: silence until `over`, then a cut."""

    done: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request, go_on: GoOn) -> web.StreamResponse:
        answer = await go_on()
        self.done.set()
        await self.over.wait()
        if request.transport:
            request.transport.abort()
        return answer


@dataclass(frozen=True, slots=True)
class Late:
    """Done and answered after so many seconds."""

    seconds: float

    async def answer(self, request: web.Request, go_on: GoOn) -> web.StreamResponse:
        await asyncio.sleep(self.seconds)
        return await go_on()


async def begin(request: web.Request) -> web.StreamResponse:
    """The head of a stream, sent at once."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response
