"""The server: requests in, faults and the store behind them, and a record of all that was asked."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import unquote

from aiohttp import web

from autoscale_enforcer.cluster.kubernetes.access import Access, NoCredentials
from tests.support.fake_api import problems, writing
from tests.support.fake_api.faults import Fault
from tests.support.fake_api.kinds import CORE, NEONVM, Target, target_of
from tests.support.fake_api.reading import Lists, Watch
from tests.support.fake_api.store import Store

_VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}
_CONTENT = "application/json"


@dataclass(frozen=True, slots=True)
class Seen:
    """A request, when it came."""

    verb: str
    """As in RBAC; `list` and `watch` are told apart."""
    resource: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)


class FakeApi:
    """One API server on a port of its own. `store` is its data, to be changed at will."""

    def __init__(
        self,
        *,
        with_vms: bool = True,
        tls: ssl.SSLContext | None = None,
        bookmarks_every: float | None = 60,
    ) -> None:
        self.store = Store((*CORE, *NEONVM) if with_vms else CORE)
        self.seen: list[Seen] = []
        self.tokens: set[str] | None = None
        """Which ones are accepted; None: nobody is asked."""
        self.forbidden: set[tuple[str, str]] = set()
        """Verb and resource, such as `("create", "pods/binding")`."""
        self.bookmarks_every = bookmarks_every
        """Seconds, as well as at the end of each watch; None: never but through `bookmark`."""
        self._tls = tls
        self._lists = Lists(self.store)
        self._next: defaultdict[tuple[str, str], deque[Fault | None]] = defaultdict(deque)
        self._always: dict[tuple[str, str], Fault] = {}
        self._watches: set[tuple[str, Watch]] = set()
        self._asked = asyncio.Condition()
        self._handlers: set[asyncio.Task[web.StreamResponse]] = set()
        self._runner: web.AppRunner | None = None
        self._socket: socket.socket | None = None
        self._address = ("", 0)
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        if self._socket is None:
            self._socket = _bound(("127.0.0.1", 0))
        await web.SockSite(self._runner, self._socket, ssl_context=self._tls).start()
        host, port = self._address = self._socket.getsockname()
        self.url = f"{'https' if self._tls else 'http'}://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end_watches()
        # Those that a fault holds; what they still write goes nowhere.
        for handler in list(self._handlers):
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        if self._runner:
            await self._runner.cleanup()
        self._socket = None

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Connections are refused meanwhile; then it is back where it was, with the same data."""
        await self.__aexit__()
        self._socket = _bound(self._address)
        yield
        await self.__aenter__()

    def access(self) -> Access:
        """To reach it with."""
        return Access(server=self.url, credentials=NoCredentials())

    # Scripting

    def next(self, verb: str, resource: str, *faults: Fault | None) -> None:
        """What happens to the next such requests, one each; None: nothing does."""
        self._next[verb, resource].extend(faults)

    def always(self, verb: str, resource: str, fault: Fault | None) -> None:
        """What happens to every such request from now on; None: nothing any more."""
        self._always.pop((verb, resource), None)
        if fault:
            self._always[verb, resource] = fault

    def bookmark(self, resource: str) -> None:
        """Send every watch of it one now."""
        for watched, watch in self._watches:
            if watched == resource:
                watch.bookmark_wanted = True
                watch.wake()

    def end_watches(self) -> None:
        """An ordinary end of all there are."""
        for _, watch in self._watches:
            watch.over = True
            watch.wake()

    # Looking

    def requests(self, verb: str, resource: str) -> list[Seen]:
        return [each for each in self.seen if (each.verb, each.resource) == (verb, resource)]

    async def until(self, verb: str, resource: str, count: int) -> list[Seen]:
        """Wait for so many such requests since the beginning."""
        async with self._asked:
            await self._asked.wait_for(lambda: len(self.requests(verb, resource)) >= count)
        return self.requests(verb, resource)

    # Serving

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            return await self._answer(request)
        except problems.Problem as problem:
            return web.Response(status=problem.code, body=problem.body(), content_type=_CONTENT)
        finally:
            self._handlers.discard(task)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        parts = [unquote(part) for part in request.rel_url.raw_path.split("/") if part]
        target = target_of(parts, self.store.kinds)
        query = dict(request.query)
        verb = _verb(request.method, target, query)
        resource = target.resource if target else "/".join(parts)
        body = await request.read()
        async with self._asked:
            headers = dict(request.headers)
            self.seen.append(Seen(verb, resource, request.path, query, headers, body))
            self._asked.notify_all()
        if self.tokens is not None:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if given not in self.tokens:
                raise problems.unauthorized()
        if target and (verb, resource) in self.forbidden:
            raise problems.forbidden(verb, resource, target.kind.group)

        async def go_on() -> web.StreamResponse:
            if target is None:
                return web.Response(status=404, text="404 page not found\n")
            return await self._do(request, target, verb, query, body)

        waiting = self._next[verb, resource]
        fault = waiting.popleft() if waiting else self._always.get((verb, resource))
        return await (fault.answer(request, go_on) if fault else go_on())

    async def _do(
        self, request: web.Request, target: Target, verb: str, query: dict[str, str], body: bytes
    ) -> web.StreamResponse:
        if verb == "watch":
            return await self._watch(request, target, query)
        code = 200
        if verb == "list":
            answer = self._lists.page(target, query)
        elif verb == "get":
            key = f"{target.namespace}/{target.name}" if target.namespace else target.name
            answer = writing.full(target, self.store.get(target.kind.plural, key))
        elif verb == "create":
            code = 201
            do = writing.bind if target.subresource == "binding" else writing.create
            answer = do(self.store, target, body)
        elif verb == "patch":
            answer = writing.patch(self.store, target, body, request.content_type)
        elif verb == "delete":
            answer = writing.delete(self.store, target, body, query)
        else:
            raise problems.Problem(405, "MethodNotAllowed", f"{verb} is not done here")
        return web.Response(status=code, body=answer, content_type=_CONTENT)

    async def _watch(
        self, request: web.Request, target: Target, query: dict[str, str]
    ) -> web.StreamResponse:
        entry = (target.kind.plural, Watch(self.store, target, query))
        self._watches.add(entry)
        try:
            return await entry[1].serve(request, bookmarks_every=self.bookmarks_every)
        finally:
            self._watches.discard(entry)


def _bound(address: tuple[str, int]) -> socket.socket:
    """Holds the port; refuses connections until somebody listens."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(address)
    return made


def _verb(method: str, target: Target | None, query: dict[str, str]) -> str:
    if method != "GET":
        return _VERBS.get(method, method)
    if target is None or target.name:
        return "get"
    return "watch" if query.get("watch") in ("1", "true") else "list"
