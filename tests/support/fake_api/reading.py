"""Lists in pages, and watches."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from tests.support.fake_api import problems
from tests.support.fake_api.faults import SLOW, begin
from tests.support.fake_api.kinds import Target
from tests.support.fake_api.selectors import Selects, selector
from tests.support.fake_api.store import Happened, Store, Table

_SNAPSHOTS = 8
_Send = Callable[[bytes], Awaitable[None]]


class _Token(msgspec.Struct):
    v: int
    start: int


@dataclass(slots=True)
class Lists:
    """Lists; the pages of one are all of one version, until that is forgotten."""

    store: Store
    snapshots: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)

    def page(self, target: Target, query: dict[str, str]) -> bytes:
        """A list, or as much of it as was asked for."""
        table = self.store.tables[target.kind.plural]
        selects = selector(query, target.namespace)
        limit = int(query.get("limit") or 0)
        token = _token(query.get("continue", ""))
        version = token.v if token else self.store.version
        key = (f"{target.kind.plural}?{target.namespace}?{sorted(_selectors(query))}", version)
        if token:
            if token.v < table.forgotten or key not in self.snapshots:
                raise problems.expired("The provided continue parameter is too old to display")
            rows = self.snapshots[key]
        else:
            rows = [table.rows[each] for each in table.sorted_keys()]
            rows = rows if selects is None else [row for row in rows if selects(row)]
        start = token.start if token else 0
        end = start + limit if limit else len(rows)
        if end < len(rows):
            self.snapshots[key] = rows
            while len(self.snapshots) > _SNAPSHOTS:
                del self.snapshots[next(iter(self.snapshots))]
        return _list_body(target, rows, start, end, version)


def _list_body(target: Target, rows: list[bytes], start: int, end: int, version: int) -> bytes:
    metadata: dict[str, str | int] = {"resourceVersion": str(version)}
    if end < len(rows):
        following = msgspec.json.encode(_Token(version, end))
        metadata["continue"] = base64.urlsafe_b64encode(following).decode()
        metadata["remainingItemCount"] = len(rows) - end
    items = rows[start:end]
    if target.kind.group:  # custom objects carry their kind in lists too
        items = [target.kind.head + row[1:] for row in items]
    kind, api = target.kind.name, target.kind.api_version
    head = f'{{"kind":"{kind}List","apiVersion":"{api}","metadata":'.encode()
    return b"".join((head, msgspec.json.encode(metadata), b',"items":[', b",".join(items), b"]}\n"))


def _token(text: str) -> _Token | None:
    return msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Token) if text else None


def _selectors(query: dict[str, str]) -> list[tuple[str, str]]:
    return [each for each in query.items() if each[0].endswith("Selector")]


class Watch:
    """One watch: what happened since a version, until its time is over or the server closes."""

    def __init__(self, store: Store, target: Target, query: dict[str, str]) -> None:
        self._store, self._head = store, target.kind.head
        self._table: Table = store.tables[target.kind.plural]
        self._selects: Selects | None = selector(query, target.namespace)
        self._bookmarks = query.get("allowWatchBookmarks") in ("1", "true")
        asked = query.get("resourceVersion", "")
        self._begins_with_all = asked in ("", "0")
        self._version = store.version if self._begins_with_all else int(asked)
        self._lasts = float(query.get("timeoutSeconds") or 1800)
        self.bookmark_wanted = False
        self.over = False
        self.signal = asyncio.Event()

    def wake(self) -> None:
        self.signal.set()

    async def serve(
        self, request: web.Request, *, bookmarks_every: float | None
    ) -> web.StreamResponse:
        """Raises the refusals that come in place of a stream."""
        if self._version > self._store.version:
            raise problems.version_ahead(self._version, self._store.version)
        slow = request.get(SLOW)
        response = await begin(request)

        async def send(content: bytes) -> None:
            if content and slow is not None:
                await slow.write(response, content)
            elif content:
                await response.write(content)

        if self._version < self._table.forgotten:
            words = f"too old resource version: {self._version} ({self._table.forgotten})"
            await send(_line("ERROR", problems.expired(words).body()))
            return response
        self._table.watchers.add(self.signal)
        try:
            await self._follow(send, bookmarks_every)
        except ConnectionError:
            pass  # The client is gone.
        finally:
            self._table.watchers.discard(self.signal)
        return response

    async def _follow(self, send: _Send, every: float | None) -> None:
        clock = asyncio.get_running_loop().time
        ends = clock() + self._lasts
        next_bookmark = clock() + every if every and self._bookmarks else float("inf")
        if self._begins_with_all:
            rows = [self._table.rows[key] for key in self._table.sorted_keys()]
            rows = rows if self._selects is None else [row for row in rows if self._selects(row)]
            await send(b"".join(self._object_line("ADDED", row) for row in rows))
        while True:
            self.signal.clear()
            await send(self._news())
            if self.bookmark_wanted or clock() >= next_bookmark:
                self.bookmark_wanted = False
                next_bookmark = clock() + every if every else float("inf")
                await send(self._bookmark())
            if self.over or clock() >= ends:
                break
            try:
                async with asyncio.timeout_at(min(ends, next_bookmark)):
                    await self.signal.wait()
            except TimeoutError:
                continue
        if every and self._bookmarks and not self.over:
            await send(self._bookmark())

    def _news(self) -> bytes:
        happened = self._table.since(self._version)
        if happened:
            self._version = happened[-1].version
        return b"".join(self._event(each) for each in happened)

    def _event(self, happened: Happened) -> bytes:
        action = happened.action
        if self._selects is not None:
            was = happened.before is not None and self._selects(happened.before)
            is_now = action != "DELETED" and self._selects(happened.after)
            if not (was or is_now):
                return b""
            action = "MODIFIED" if was and is_now else "ADDED" if is_now else "DELETED"
        return self._object_line(action, happened.after)

    def _object_line(self, action: str, row: bytes) -> bytes:
        return _line(action, self._head + row[1:])

    def _bookmark(self) -> bytes:
        self._version = max(self._version, self._store.version)
        metadata = f'"metadata":{{"resourceVersion":"{self._version}","creationTimestamp":null}}'
        return _line("BOOKMARK", self._head + metadata.encode() + b',"spec":{},"status":{}}')


def _line(action: str, content: bytes) -> bytes:
    return b'{"type":"' + action.encode() + b'","object":' + content + b"}\n"
