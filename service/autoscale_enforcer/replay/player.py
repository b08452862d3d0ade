"""Sends a recording to an extender, in order, each call over a connection of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import timedelta
from urllib.parse import urlsplit

import aiohttp

from autoscale_enforcer.errors import ServiceError
from autoscale_enforcer.replay.judge import Judge
from autoscale_enforcer.replay.recording import Call
from autoscale_enforcer.replay.tally import Tally
from autoscale_enforcer.replay.verdict import Answer, NoAnswer

GIVE_UP_AFTER = 3
"""Calls in a row without an answer after which the service counts as not reachable."""

DEFAULT_PATH = "/extender"


class _UnreachableError(Exception):
    """Nobody listens there."""


def extender_url(text: str) -> str:
    """`text` as the base that `/verb` is put behind; `/extender` where it has no path.

    Raises ServiceError when it is no HTTP address.
    """
    refusal = ServiceError(f"{text!r} is no address like http://127.0.0.1:10298/extender")
    try:
        parts = urlsplit(text)
        has_host = bool(parts.hostname) and parts.port != 0  # a bad port raises when read
    except ValueError as error:
        raise refusal from error
    if not has_host or parts.scheme not in {"http", "https"} or parts.query:
        raise refusal
    path = parts.path.rstrip("/") or DEFAULT_PATH
    return f"{parts.scheme}://{parts.netloc}{path}"


async def play(calls: Iterable[Call], *, extender: str, answer_limit: timedelta) -> Tally:
    """Send each call and judge its answer; the tally says whether the service went away.

    A new connection for each lets the kernel spread them over replicas that share a port.
    """
    tally = Tally()
    judge = Judge()
    silent = 0
    async with _session(answer_limit) as session:
        for call in calls:
            try:
                answer = await _send(session, f"{extender}/{call.verb}", call.request)
            except _UnreachableError as error:
                tally.unreachable = f"cannot reach the extender at {extender}: {error}"
                break
            tally.add(call, answer, judge.judge(call, answer))
            silent = silent + 1 if isinstance(answer, NoAnswer) else 0
            if silent == GIVE_UP_AFTER:
                tally.unreachable = f"{silent} calls in a row got no answer from {extender}"
                break
    return tally


def _session(answer_limit: timedelta) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(force_close=True),
        timeout=aiohttp.ClientTimeout(total=answer_limit.total_seconds()),
        headers={"Content-Type": "application/json", "Connection": "close"},
    )


async def _send(session: aiohttp.ClientSession, url: str, body: bytes) -> Answer | NoAnswer:
    started = time.perf_counter()
    try:
        async with session.post(url, data=body, allow_redirects=False) as response:
            text = await response.read()
    except aiohttp.ClientConnectorError as error:
        raise _UnreachableError(_reason(error)) from error
    except TimeoutError:
        return NoAnswer(f"none within {time.perf_counter() - started:.1f} s")
    except aiohttp.ClientError as error:
        return NoAnswer(str(error) or type(error).__name__)
    return Answer(
        status=response.status,
        body=text,
        replica=response.headers.get("X-Replica", ""),
        seconds=time.perf_counter() - started,
    )


def _reason(error: aiohttp.ClientConnectorError) -> str:
    # A failed look-up of a name has a negative errno and words of its own.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
