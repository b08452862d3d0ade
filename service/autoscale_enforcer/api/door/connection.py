"""One client's connection: aiohttp's, with a time limit for each thing that a client may delay.

aiohttp limits an idle connection and nothing else: a head that trickles in, or an answer that is
never taken, would hold a place for as long as its client likes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from autoscale_enforcer.api.door.bodies import SMALL, Bodies
from autoscale_enforcer.api.door.client import Client, nothing
from autoscale_enforcer.api.door.places import Place, Places
from autoscale_enforcer.api.door.turns import Turns

if sys.version_info >= (3, 12):
    from typing import override
else:
    from typing_extensions import override

TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 21\r\nConnection: close\r\n\r\nthe head is too long\n"
)


class Connection(web.RequestHandler):
    """Its place, and since when its client owes us something. Among `there` while it is open."""

    __slots__ = (
        "_began_turn",
        "_bodies",
        "_body_held",
        "_head_bytes",
        "_head_limit",
        "_now",
        "_owing_since",
        "_places",
        "_there",
        "_turns",
        "_wire",
        "is_answering",
        "is_leaving",
        "place",
    )

    def __init__(
        self,
        server: web.Server,
        *,
        place: Place,
        places: Places,
        turns: Turns,
        bodies: Bodies,
        head_limit: int,
        there: set[Client],
        **kind: Any,
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, **kind)
        self.place, self._places, self._turns = place, places, turns
        self._head_limit, self._there, self._now = head_limit, there, loop.time
        self._bodies, self._body_held = bodies, 0
        self._wire: asyncio.Transport | None = None
        self.is_answering = False
        """From a whole head to the end of the answer."""
        self.is_leaving = False
        """It ends with its next answer."""
        self._began_turn = False
        self._head_bytes = 0
        self._owing_since: float | None = self._now()
        """When the client began what it has not ended: its head, or taking its answer."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast("asyncio.Transport", transport)
        super().connection_made(transport)
        self.place.give_up = self.abort
        self._there.add(self)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._places.leave(self.place)
        self._there.discard(self)
        # What refers to itself in a circle is freed seldom, and with TLS there is much of it.
        self.place.give_up, self._wire = nothing, None

    @override
    def data_received(self, data: bytes) -> None:
        if self.is_answering:
            super().data_received(data)  # a body, or a request in advance
            return
        heads = self._request_count
        super().data_received(data)
        if self._request_count != heads:
            self.is_answering, self._owing_since = True, None
            return
        self._head_bytes += len(data)
        self._owing_since = self._owing_since or self._now()
        if self._head_bytes > self._head_limit and self._wire:
            self._wire.write(TOO_LONG)
            self.force_close()

    @override
    async def finish_response(self, request: Any, *rest: Any) -> Any:
        try:
            return await super().finish_response(request, *rest)
        finally:
            self._places.end(self.place)
            # The rest of a body that nobody reads is no head: its connection ends.
            self.is_answering = not request.content.is_eof()
            self._owing_since, self._head_bytes = None, 0

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._owing_since = self._now()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self._owing_since = None

    @override
    def handle_error(
        self, request: Any, status: int = 500, exc: Any = None, message: str | None = None
    ) -> web.StreamResponse:
        """What is no HTTP, or hangs up, is not logged, or a client could fill the log at will."""
        if isinstance(exc, ConnectionError):
            status, message = 400, "the client has gone"
        elif isinstance(exc, UnicodeError):
            # aiohttp quotes a header whose bytes are no text.
            status, message = 400, "a header is no text"
        elif not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        answer = web.Response(status=status, text=message, content_type="text/plain")
        answer.force_close()
        return answer

    @override
    def log_exception(self, *args: Any, **words: Any) -> None:
        """Not what a client has sent: of a body that nobody reads the rest may be anything."""
        if not isinstance(words.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **words)

    def begin_answer(self, head: Iterable[tuple[bytes, bytes]]) -> bool:
        """A head has come whole: from here the handler has its own limits.

        False where it is longer than a head may be.
        """
        self.is_answering, self._owing_since = True, None
        return sum(len(name) + len(value) for name, value in head) <= self._head_limit

    async def begin_turn(self) -> None:
        """The request has come whole: returns when it is its turn. Safe to repeat.

        Overloaded where too many are in flight.
        """
        if not self._began_turn:
            self._places.begin(self.place)
            await self._turns.begin(self.place.caller.address)
            self._began_turn = True

    def check_turn(self) -> None:
        """Overloaded where a request of this client would be one too many."""
        self._turns.check(self.place.caller.address)

    def hold_body(self, size: int) -> None:
        """So much of the body has come; Overloaded where others' leave it no room."""
        more = size - SMALL - self._body_held
        if more > 0:
            self._bodies.hold(self.place.caller.address, more)
            self._body_held += more

    def end_turn(self) -> None:
        """Its handler has ended. Safe to repeat."""
        if self._body_held:
            self._bodies.drop(self.place.caller.address, self._body_held)
            self._body_held = 0
        if self._began_turn:
            self._began_turn = False
            self._turns.end(self.place.caller.address)

    def owes_since(self, moment: float) -> bool:
        """The client has owed us something since before that moment."""
        if self._owing_since is None and self._wire and self._wire.is_closing():
            self._owing_since = self._now()  # to take what is left of its answer
        return self._owing_since is not None and self._owing_since < moment

    def abort(self) -> None:
        """End it at once, whatever is still to be sent."""
        self.force_close()
        if self._wire:
            self._wire.abort()
