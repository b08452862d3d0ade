"""Who calls a port: a client certificate with a name that is allowed, or a token that is."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Middleware

from autoscale_enforcer.api.bearer import bearer_token
from autoscale_enforcer.api.door.tls import names_in
from autoscale_enforcer.api.http import Handler, in_time
from autoscale_enforcer.errors import (
    CheckUnavailable,
    ClusterUnavailable,
    NotAllowed,
    NotIdentified,
    TooLate,
)
from autoscale_enforcer.time_limit import TimeLimit

log = logging.getLogger(__name__)


class Reviews(Protocol):
    """Says of a token whether it may call."""

    async def is_allowed(self, token: str, *, caller: str) -> bool:
        """Raises ClusterUnavailable where that cannot be found out."""
        ...


def only_known_callers(
    names: Iterable[str], reviews: Reviews | None = None, *, within: timedelta
) -> Middleware:
    """Lets those through whose certificate has one of the names, or whose token is allowed."""
    allowed, limit = frozenset(names), TimeLimit(within)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        shown = set(names_in(request.get_extra_info("peercert")))
        if not shown & allowed:
            if reviews is None:
                raise _refusal(shown)
            await _check_token(request, reviews, limit)
        return await handler(request)

    return check


def _refusal(shown: set[str]) -> NotAllowed | NotIdentified:
    if not shown:
        return NotIdentified("show a client certificate")
    return NotAllowed(f"certificates of {', '.join(sorted(shown))} may not call this port")


async def _check_token(request: web.Request, reviews: Reviews, limit: TimeLimit) -> None:
    token = bearer_token(request)
    try:
        asked = reviews.is_allowed(token, caller=request.remote or "")
        is_allowed = await in_time(asked, limit)
    except (ClusterUnavailable, TooLate) as error:
        log.warning("a token could not be reviewed: %s", error)
        raise CheckUnavailable("the token cannot be reviewed now: ask again") from error
    if not is_allowed:
        raise NotIdentified("that is not the token of a service account that may call this port")
