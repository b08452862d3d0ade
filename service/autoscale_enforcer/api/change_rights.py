"""Who may change things over the admin port: whoever has the admin token, and nobody without one.

It guards every request that is no read, whatever its path: a route that changes something cannot
be added without it.
"""

from __future__ import annotations

import hmac
import logging
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Middleware

from autoscale_enforcer.api.bearer import bearer_token
from autoscale_enforcer.api.http import READS, Handler
from autoscale_enforcer.config.settings import find_token
from autoscale_enforcer.errors import CheckUnavailable, ConfigError, NotAllowed, NotIdentified

log = logging.getLogger(__name__)


def changes_need_token(file: Path | None) -> Middleware:
    """Lets reads through, and changes that carry the token which the file holds at that moment.

    The file is read anew for each change, which is seldom: a new token counts at once, and the
    first one too.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_ours = request.match_info.http_exception is None
        if is_ours and request.method not in READS:
            _check(request, file)
        return await handler(request)

    return check


def _check(request: web.Request, file: Path | None) -> None:
    if file is None:
        raise NotAllowed("changes are off: the service was started without --admin-token-file")
    try:
        wanted = find_token(file)
    except ConfigError as error:
        log.error("no change is let in: %s", error)  # noqa: TRY400 - the file, not a bug of ours
        raise CheckUnavailable("the admin token cannot be read: see the service's log") from error
    if wanted is None:
        raise NotAllowed("changes are off: the file of --admin-token-file is not there")
    if not hmac.compare_digest(bearer_token(request).encode(), wanted.reveal().encode()):
        raise NotIdentified("that is not the admin token")
