"""Asks the admin port of a replica, and ends the command in the right way where that fails."""

from __future__ import annotations

import asyncio
import os
import ssl
from datetime import timedelta
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp
import click
import msgspec

from autoscale_enforcer.cli.exit_codes import RefusedError, UnreachableError

ANSWER_LIMIT = timedelta(seconds=70)
"""Verify reads the whole ledger; a replica gives that up after a minute, and says so."""

_LONGEST_REASON = 300

Answer = TypeVar("Answer")


def get(admin_url: str, path: str) -> bytes:
    """The body of a successful answer.

    Raises UnreachableError where none came, RefusedError where it was something else.
    """
    return _ask(_base(admin_url) + path)


def _ask(url: str, order: bytes | None = None, token: str = "") -> bytes:
    try:
        return asyncio.run(_send(url, order, token))
    except TimeoutError as error:
        limit = f"{ANSWER_LIMIT.total_seconds():g} s"
        raise UnreachableError(f"no answer from {url} within {limit}") from error
    except (aiohttp.ClientError, OSError) as error:
        raise UnreachableError(f"cannot reach {url}: {_reason(error)}") from error


def post(admin_url: str, path: str, document: object, *, token: str) -> bytes:
    """The body of a successful answer to an order; raises as `get` does."""
    return _ask(_base(admin_url) + path, msgspec.json.encode(document), token)


def read(body: bytes, shape: type[Answer], *, admin_url: str) -> Answer:
    """The body as that type; RefusedError where it is none, for then it is no service of ours."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.MsgspecError as error:
        words = f"the answer from {admin_url} is not one of autoscale-enforcer: {error}"
        raise RefusedError(words) from error


def _base(admin_url: str) -> str:
    refusal = click.BadParameter(f"{admin_url!r} is no address like http://127.0.0.1:9100")
    try:
        parts = urlsplit(admin_url)
        has_host = bool(parts.hostname) and parts.port != 0  # a bad port raises when read
    except ValueError as error:
        raise refusal from error
    if not has_host or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
        raise refusal
    return admin_url.rstrip("/")


async def _send(url: str, order: bytes | None, token: str) -> bytes:
    limit = aiohttp.ClientTimeout(total=ANSWER_LIMIT.total_seconds())
    method = "GET" if order is None else "POST"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(timeout=limit) as session,
        session.request(
            method, url, data=order, headers=headers, allow_redirects=False
        ) as response,
    ):
        body = await response.read()
        if response.status != 200:
            words = body.decode(errors="replace").strip()[:_LONGEST_REASON]
            raise RefusedError(f"{url} answered {response.status} {words or response.reason}")
        return body


def _reason(error: aiohttp.ClientError | OSError) -> str:
    # A failure of TLS carries the numbers of OpenSSL.
    if not isinstance(error, OSError) or isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        return str(error) or type(error).__name__
    # A failed look-up of a name has a negative errno and words of its own.
    code = error.errno or 0
    return os.strerror(code) if code > 0 else error.strerror or str(error)
