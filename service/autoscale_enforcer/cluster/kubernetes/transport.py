"""One request to the API server over aiohttp: who we are, how long it may take, what went wrong.

Nothing of aiohttp leaves this module but the stream of a watch, which `client` reads by
`next_chunk`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta

import aiohttp
from yarl import URL

from autoscale_enforcer.cluster.kubernetes.access import Access
from autoscale_enforcer.errors import ClusterUnavailable

USER_AGENT = "AutoscaleEnforcer"
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds, seconds, times: a peer whose machine is gone is noticed after half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """How long the API server may take."""

    connect: timedelta = timedelta(seconds=2)
    """For a connection. In one cluster it takes milliseconds."""
    request: timedelta = timedelta(seconds=5)
    """For a whole answer, and for the head of a watch. kube-scheduler gives a bind 5 s."""
    page: timedelta = timedelta(seconds=60)
    """For one page of a list: the API server's own limit."""
    watch_slack: timedelta = timedelta(seconds=15)
    """How much longer than the time it was asked to last a watch may stay silent."""
    bookmark_silence: timedelta = timedelta(seconds=130)
    """Of a watch that has sent a bookmark: kube-apiserver sends such a watch one about every
    minute, and two that do not come mean that nothing more will."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent."""

    method: str
    path: str
    content: bytes | None = None
    content_type: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whole."""

    status: int
    headers: dict[str, str]
    body: bytes


class Transport:
    """The connections to one API server. To be opened before the first request."""

    def __init__(self, access: Access, settings: ApiSettings) -> None:
        self.settings = settings
        self._access = access
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Make ready; nothing is sent yet."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(socket_factory=_socket),
            headers={
                "User-Agent": USER_AGENT,
                "Accept": "application/json",
                # Unpacking megabytes would cost the event loop more than they cost the network.
                "Accept-Encoding": "identity",
            },
        )

    async def close(self) -> None:
        """Give up the connections."""
        if self._session is not None:
            await self._session.close()

    async def call(self, asked: str, request: Request, *, within: timedelta) -> Answer:
        """The whole answer, whatever its status; raises ClusterUnavailable where none came.

        Again with renewed credentials after a 401, which did nothing; else never twice, save that
        aiohttp sends a read again where the server has just closed an idle connection.
        """
        with _our_errors(asked):
            async with asyncio.timeout(within.total_seconds()):
                response = await self._send(request, sock_read=None)
                async with response:
                    return await _whole(response)

    @asynccontextmanager
    async def stream(
        self, asked: str, request: Request, *, idle: timedelta
    ) -> AsyncIterator[Answer | aiohttp.StreamReader]:
        """The body of a 200 as it comes, without a limit of time but that between two chunks.

        Another answer comes whole. It is read by `next_chunk`.
        """
        within = self.settings.request.total_seconds()
        with _our_errors(asked):
            async with asyncio.timeout(within):
                response = await self._send(request, sock_read=idle.total_seconds())
        try:
            if response.status == 200:
                yield response.content
                return
            with _our_errors(asked):
                async with asyncio.timeout(within):
                    answer = await _whole(response)
            yield answer
        finally:
            response.close()

    async def _send(self, request: Request, *, sock_read: float | None) -> aiohttp.ClientResponse:
        credentials = self._access.credentials
        authorization = await credentials.authorization()
        response = await self._send_as(authorization, request, sock_read)
        if response.status == 401 and await credentials.renew(authorization):
            response.close()
            authorization = await credentials.authorization()
            response = await self._send_as(authorization, request, sock_read)
        return response

    async def _send_as(
        self, authorization: str, request: Request, sock_read: float | None
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise ClusterUnavailable("the client is not open")
        headers = {"Authorization": authorization} if authorization else {}
        if request.content_type:
            headers["Content-Type"] = request.content_type
        return await self._session.request(
            request.method,
            URL(self._access.server + request.path, encoded=True),
            headers=headers,
            data=request.content,
            # Also so that a token goes nowhere else.
            allow_redirects=False,
            proxy=self._access.proxy,
            # Part of what tells connections apart: none that trusted other files is used again.
            ssl=self._access.tls() if self._access.tls else True,
            server_hostname=self._access.server_name,
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=self.settings.connect.total_seconds(),
                sock_read=sock_read,
            ),
        )


@contextmanager
def _our_errors(asked: str) -> Iterator[None]:
    """Turns what aiohttp raises into ClusterUnavailable; `asked` says what for."""
    try:
        yield
    except TimeoutError as error:
        raise ClusterUnavailable(f"{asked}: no answer in time") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ClusterUnavailable(f"{asked}: {str(error) or type(error).__name__}") from error


async def next_chunk(asked: str, body: aiohttp.StreamReader, *, within: timedelta) -> bytes:
    """What comes next of a stream; empty at its end. Raises ClusterUnavailable for silence."""
    with _our_errors(asked):
        async with asyncio.timeout(within.total_seconds()):
            return await body.readany()


async def _whole(response: aiohttp.ClientResponse) -> Answer:
    body = await response.read()
    return Answer(response.status, dict(response.headers), body)


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)  # noqa: FBT003 - socket takes nothing else
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if option := getattr(socket, name, None):
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
