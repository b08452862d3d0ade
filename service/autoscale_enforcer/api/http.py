"""What the three front doors share: bodies with a limit, errors as answers, `X-Replica`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from autoscale_enforcer.api.door.connection import Connection
from autoscale_enforcer.errors import (
    CheckUnavailable,
    ClusterUnavailable,
    LedgerUnavailable,
    NotAllowed,
    NotFound,
    NotIdentified,
    Overloaded,
    ServiceError,
    TooLate,
    WireError,
)
from autoscale_enforcer.time_limit import TimeLimit

log = logging.getLogger(__name__)

T = TypeVar("T")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

STATUS: dict[type[ServiceError], int] = {
    WireError: 400,
    NotIdentified: 401,
    NotAllowed: 403,
    NotFound: 404,
    CheckUnavailable: 503,
    Overloaded: 503,
    LedgerUnavailable: 503,
    ClusterUnavailable: 503,
    TooLate: 503,
}
"""The one table from errors to HTTP; what is not in it is a bug of ours, 500."""

READS = frozenset({"GET", "HEAD"})
"""Methods that change nothing and whose bodies nobody reads."""

REPLICA_HEADER = "X-Replica"
JSON = "application/json"


async def read_body(request: web.Request, *, limit: int, within: timedelta) -> bytes:
    """The body; WireError where it is longer than `limit` bytes or does not arrive in time.

    Of a body that is too long no more than the limit is read.
    """
    if request.content_length is not None and request.content_length > limit:
        raise WireError("", f"the body is longer than {limit} bytes")
    connection = request.protocol if isinstance(request.protocol, Connection) else None
    chunks, length = [], 0
    try:
        async with asyncio.timeout(within.total_seconds()):
            async for chunk in request.content.iter_any():
                length += len(chunk)
                if length > limit:
                    raise WireError("", f"the body is longer than {limit} bytes")
                if connection:
                    connection.hold_body(length)
                chunks.append(chunk)
    except TimeoutError:
        raise WireError("", "the body did not arrive in time") from None
    except web.RequestPayloadError as error:
        raise WireError("", "the body cannot be unpacked") from error
    if connection:
        await connection.begin_turn()
    return b"".join(chunks)


async def in_time(work: Awaitable[T], limit: TimeLimit) -> T:
    """What `work` gives; TooLate, and `work` cancelled, where that takes longer."""
    try:
        with limit.each():
            return await work
    except TimeoutError:
        raise TooLate("no answer in time: ask again") from None


def json_answer(body: bytes) -> web.Response:
    """200 with a JSON body."""
    return web.Response(body=body, content_type=JSON)


def text_answer(status: int, text: str) -> web.Response:
    """An answer for people; no control characters, however hostile what it quotes."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return web.Response(status=status, text=shown + "\n", content_type="text/plain")


Count = Callable[[str, int, float], None]
"""Told of each answer: path (`other` for one that is none of ours), status, seconds."""


def application(
    replica: str, count: Count | None = None, *, checks: Sequence[Middleware] = ()
) -> web.Application:
    """An application that answers errors by the table and names the replica in every answer.

    `checks` run before each handler and may raise instead.
    """

    async def name_replica(request: web.Request, response: web.StreamResponse) -> None:
        response.headers[REPLICA_HEADER] = replica
        if not request.content.is_eof() or _is_leaving(request):
            # A body that was not read to its end ends its connection; and so does a drain.
            response.force_close()
            response.headers[hdrs.CONNECTION] = "close"

    counting = [_counting(count)] if count else []
    app = web.Application(middlewares=[*counting, errors_as_answers, in_its_turn, *checks])
    app.on_response_prepare.append(name_replica)
    return app


def _is_leaving(request: web.Request) -> bool:
    return isinstance(request.protocol, Connection) and request.protocol.is_leaving


@web.middleware
async def errors_as_answers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error as an answer."""
    try:
        return await handler(request)
    except Exception as error:  # noqa: BLE001 - a bug of ours is an answer, too
        return answer_to(error, f"{request.method} {request.path}")


def answer_to(error: Exception, asked: str) -> web.Response:
    """What a caller is told of the error; what is a bug of ours is logged with what was asked."""
    if isinstance(error, ServiceError):
        status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), None)
        if status is not None:
            return _refusal(status, error)
    if isinstance(error, web.HTTPException):
        return _in_our_words(error)
    if isinstance(error, ConnectionResetError):
        # Nobody reads it. Raised on, aiohttp would log it as an error of ours, at a client's will.
        return text_answer(400, "the client has gone")
    log.error("%s", asked, exc_info=error)
    return text_answer(500, "internal error")


def _refusal(status: int, error: ServiceError) -> web.Response:
    answer = text_answer(status, str(error))
    if isinstance(error, NotIdentified):
        answer.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    if isinstance(error, Overloaded):
        answer.headers[hdrs.RETRY_AFTER] = "1"
    return answer


@web.middleware
async def in_its_turn(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Overloaded where too many requests are in flight, before a body is read where it can be."""
    connection = request.protocol
    if not isinstance(connection, Connection):
        return await handler(request)
    if not connection.begin_answer(request.raw_headers):
        answer = text_answer(431, "the head is too long")
        answer.force_close()
        return answer
    try:
        if request.content.is_eof() or request.method in READS:
            await connection.begin_turn()
        else:
            connection.check_turn()
        return await handler(request)
    finally:
        connection.end_turn()


def _counting(count: Count) -> Middleware:
    @web.middleware
    async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.monotonic()
        response = await handler(request)
        resource = request.match_info.route.resource
        path = resource.canonical if resource else "other"
        count(path, response.status, time.monotonic() - began)
        return response

    return counted


def _in_our_words(error: web.HTTPException) -> web.Response:
    """404, 405 and the like, which aiohttp raises."""
    answer = text_answer(error.status, error.reason)
    if "Allow" in error.headers:
        answer.headers["Allow"] = error.headers["Allow"]
    return answer
