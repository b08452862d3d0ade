"""Requests to one API server: typed, each with a time limit, reads within a budget.

Every failure is a ClusterUnavailable (`failures` says which) or, for one object that came and
cannot be read, an ObjectError. No write is sent twice, save after a 401, which did nothing.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Self

import msgspec

from autoscale_enforcer.cluster.kubernetes.access import Access
from autoscale_enforcer.cluster.kubernetes.answers import (
    Bookmark,
    K,
    Listing,
    Page,
    Reply,
    WatchEvent,
    read_event,
    read_object,
    read_page,
)
from autoscale_enforcer.cluster.kubernetes.budget import ReadBudget
from autoscale_enforcer.cluster.kubernetes.failures import Expired, read_status, refusal
from autoscale_enforcer.cluster.kubernetes.lines import LineSplitter
from autoscale_enforcer.cluster.kubernetes.paths import asked_for, with_query
from autoscale_enforcer.cluster.kubernetes.transport import (
    Answer,
    ApiSettings,
    Request,
    Transport,
    next_chunk,
)
from autoscale_enforcer.errors import ClusterUnavailable

PAGE_SIZE = 500
"""client-go's own."""
_WHOLE_AFTER = 2
"""Lists begun again after which one is asked for without pages, which cannot expire."""


class KubeApi:
    """One API server. To be entered before the first request and left after the last."""

    def __init__(
        self,
        access: Access,
        settings: ApiSettings | None = None,
        budget: ReadBudget | None = None,
    ) -> None:
        self.settings = settings or ApiSettings()
        self.budget = budget or ReadBudget()
        self._transport = Transport(access, self.settings)

    async def __aenter__(self) -> Self:
        self._transport.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.close()

    async def get(self, path: str, kind: type[K]) -> K | None:
        """The object as it is now; None: the API server says in its own words that there is none.

        Raises NotServed for any other 404, be it of a kind that is not served here or of a proxy in
        between, and ObjectError for what came and cannot be read.
        """
        await self.budget.take()
        asked = asked_for("get", path)
        request = Request("GET", path)
        answer = await self._transport.call(asked, request, within=self.settings.request)
        if answer.status == 404 and read_status(answer.body).reason == "NotFound":
            return None
        return read_object(asked, _good(asked, answer), kind)

    async def list_pages(
        self, path: str, kind: type[K], *, limit: int = PAGE_SIZE, metered: bool = True
    ) -> AsyncGenerator[Page[K], None]:
        """A list as it is now, never from a cache; each page is one read of the budget.

        Where its version expires on the way it begins again, which a page tells. Raises NotServed
        where this cluster does not know the kind.
        """
        asked = asked_for("list", path)
        token, expired, begins = "", 0, True
        while begins or token:
            if metered:
                await self.budget.take()
            query = {"limit": str(limit)} if expired < _WHOLE_AFTER else {}
            query |= {"continue": token} if token else {}
            request = Request("GET", with_query(path, **query))
            answer = await self._transport.call(asked, request, within=self.settings.page)
            try:
                body = _good(asked, answer)
            except Expired:
                if not token:
                    raise
                token, expired, begins = "", expired + 1, True
                continue
            page = await read_page(asked, body, kind, begins=begins)
            yield page
            token, begins = page.next_page, False

    async def list_all(self, path: str, kind: type[K]) -> Listing[K]:
        """A whole list, as `list_pages` gives it."""
        listing: Listing[K] = Listing()
        async for page in self.list_pages(path, kind):
            if page.begins:
                listing = Listing(resource_version=page.resource_version)
            listing.items += page.items
            listing.bad += page.bad
        return listing

    async def watch(
        self, path: str, kind: type[K], *, resource_version: str, lasts: timedelta
    ) -> AsyncGenerator[WatchEvent[K], None]:
        """What happens after that version, until the API server ends it, which is no error.

        It is asked to do so after `lasts`, and given up when it is silent then, or after a
        bookmark for the time of two. Raises Expired where that version is known no longer, at the
        start or later.
        """
        asked = asked_for("watch", path)
        request = Request("GET", _watch_path(path, resource_version, lasts))
        slack = self.settings.watch_slack
        idle, began = lasts + slack, time.monotonic()

        def left() -> timedelta:
            """Until it must have ended; after a word that comes late, the slack."""
            return max(slack, idle - timedelta(seconds=time.monotonic() - began))

        async with self._transport.stream(asked, request, idle=idle) as body:
            if isinstance(body, Answer):
                _good(asked, body)
                return
            lines, silence = LineSplitter(), idle
            while chunk := await next_chunk(asked, body, within=min(silence, left())):
                for line in lines.feed(chunk):
                    event = read_event(asked, line, kind)
                    if isinstance(event, Bookmark):
                        # Of this watch only: another API server may have none to send yet.
                        silence = min(idle, self.settings.bookmark_silence)
                    yield event
            if lines.is_mid_line:
                raise ClusterUnavailable(f"{asked}: ended inside an event")

    async def post(self, path: str, body: object) -> Reply:
        """Create something; a refusal is a reply too.

        Raises ClusterUnavailable where no answer came; it may have been done, or be done yet.
        """
        return await self._write("POST", path, body, "application/json")

    async def patch(self, path: str, body: object, content_type: str) -> Reply:
        """Change something; replies and raises as `post` does."""
        return await self._write("PATCH", path, body, content_type)

    async def _write(self, method: str, path: str, body: object, content_type: str) -> Reply:
        asked = asked_for("create" if method == "POST" else "patch", path)
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        request = Request(method, path, content, content_type)
        answer = await self._transport.call(asked, request, within=self.settings.request)
        status = read_status(answer.body)
        if answer.status == 403:
            status.message = str(refusal(asked, 403, status))
        return Reply(answer.status, status.reason or "", status.message or "", answer.body)


def _good(asked: str, answer: Answer) -> bytes:
    """The body of a 200; raises ApiRefusal for anything else."""
    if answer.status != 200:
        raise refusal(asked, answer.status, read_status(answer.body), answer.headers)
    return answer.body


def _watch_path(path: str, resource_version: str, lasts: timedelta) -> str:
    return with_query(
        path,
        watch="1",
        allowWatchBookmarks="true",
        resourceVersion=resource_version,
        timeoutSeconds=str(max(1, round(lasts.total_seconds()))),
    )
