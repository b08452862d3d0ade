"""A door before a real API server: passes everything on, and loses or holds what it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web

HEADERS = ("Authorization", "Content-Type", "Accept", "User-Agent")
BIG = 64 * 1024 * 1024


@dataclass(slots=True)
class Asked:
    """One request that came."""

    method: str
    path: str
    status: int = 0
    """What the API server answered; 0: nothing yet."""


class ApiProxy:
    """`async with ApiProxy(url, ca_file) as proxy:` and give a replica `proxy.kubeconfig(token)`.

    A request whose reply is lost has been carried out; one that is held waits at the door, and is
    carried out after `calm` even if nobody waits for it any more.
    """

    def __init__(self, url: str, ca_file: Path) -> None:
        self._url = url
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._http: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None
        self._lost: list[tuple[str, re.Pattern[str]]] = []
        self._held: list[tuple[str, re.Pattern[str]]] = []
        self._dropped: list[tuple[str, re.Pattern[str]]] = []
        self._calm = asyncio.Event()
        self._events_pass = asyncio.Event()
        self._events_pass.set()
        self.asked: list[Asked] = []
        """Every request that came, in order."""

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        app = web.Application(client_max_size=BIG)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.calm()
        if self._runner:
            await self._runner.cleanup()
        if self._http:
            await self._http.close()

    @property
    def url(self) -> str:
        assert self._runner
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def kubeconfig(self, token: str, folder: Path) -> Path:
        """A kubeconfig file for whoever holds the token, through this door."""
        path = folder / "kubeconfig-by-proxy.json"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": {"server": self.url}}],
            "users": [{"name": "e2e", "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        }
        path.write_text(json.dumps(document))
        return path

    def lose_reply(self, method: str, pattern: str) -> None:
        """Carry out the next such request and never answer it."""
        self._lost.append((method, re.compile(pattern)))

    def hold(self, method: str, pattern: str) -> None:
        """Keep such requests at the door, until `calm`."""
        self._calm.clear()
        self._held.append((method, re.compile(pattern)))

    def drop(self, method: str, pattern: str) -> None:
        """Never carry out such requests, and never answer them, until `calm`."""
        self._dropped.append((method, re.compile(pattern)))

    def hold_events(self) -> None:
        """Watches stay open and tell nothing, until `calm`."""
        self._events_pass.clear()

    def calm(self) -> None:
        """Lose nothing more, and let pass what was held."""
        self._lost, self._held, self._dropped = [], [], []
        self._calm.set()
        self._events_pass.set()

    def count(self, method: str, pattern: str) -> int:
        """Such requests so far."""
        return len(self.statuses(method, pattern))

    def statuses(self, method: str, pattern: str) -> list[int]:
        """What the API server answered to such requests, in their order."""
        return [
            each.status
            for each in self.asked
            if each.method == method and re.search(pattern, each.path)
        ]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(request.method, request.path_qs)
        self.asked.append(asked)
        body = await request.read()
        if "watch" in request.query:
            return await self._stream(request)
        if _match(self._dropped, request):
            await asyncio.Event().wait()  # until whoever asked has gone away
        carried = asyncio.ensure_future(self._carry_out(request, body, asked))
        with contextlib.suppress(asyncio.CancelledError):
            status, headers, content = await asyncio.shield(carried)
            if lost := _match(self._lost, request):
                self._lost.remove(lost)
                self._calm.clear()
                await self._calm.wait()
            return web.Response(status=status, headers=headers, body=content)
        await carried  # whoever asked has gone away
        raise asyncio.CancelledError

    async def _carry_out(
        self, request: web.Request, body: bytes, asked: Asked
    ) -> tuple[int, dict[str, str], bytes]:
        if _match(self._held, request):
            await self._calm.wait()
        async with self._call(request, body) as answer:
            content = await answer.read()
            asked.status = answer.status
            return answer.status, {"Content-Type": answer.headers["Content-Type"]}, content

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        async with self._call(request, b"") as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = "application/json"
            await response.prepare(request)
            with contextlib.suppress(OSError):
                async for chunk in answer.content.iter_any():
                    await self._events_pass.wait()
                    await response.write(chunk)
            return response

    def _call(self, request: web.Request, body: bytes) -> aiohttp.client._RequestContextManager:
        assert self._http
        headers = {name: request.headers[name] for name in HEADERS if name in request.headers}
        return self._http.request(
            request.method, self._url + request.path_qs, data=body or None, headers=headers
        )


def _match(
    faults: list[tuple[str, re.Pattern[str]]], request: web.Request
) -> tuple[str, re.Pattern[str]] | None:
    found = (each for each in faults if each[0] == request.method and each[1].search(request.path))
    return next(found, None)
