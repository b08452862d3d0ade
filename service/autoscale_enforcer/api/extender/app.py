"""The verbs behind their paths, on port 10298."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Middleware

from autoscale_enforcer.api.extender.bind import answer_bind
from autoscale_enforcer.api.extender.desk import Desk
from autoscale_enforcer.api.extender.filter import answer_filter
from autoscale_enforcer.api.extender.preempt import answer_preempt
from autoscale_enforcer.api.extender.prioritize import answer_prioritize
from autoscale_enforcer.api.extender.reserve import answer_reserve, answer_unreserve
from autoscale_enforcer.api.http import Count, application, json_answer, read_body
from autoscale_enforcer.config.settings import LimitSettings

Verb = Callable[[Desk, bytes], Awaitable[bytes]]

VERBS: dict[str, Verb] = {
    "filter": answer_filter,
    "prioritize": answer_prioritize,
    "preempt": answer_preempt,
    "bind": answer_bind,
    "reserve": answer_reserve,
    "unreserve": answer_unreserve,
}


def extender_app(
    desk: Desk,
    limits: LimitSettings,
    count: Count | None = None,
    *,
    checks: Sequence[Middleware] = (),
) -> web.Application:
    """`POST /extender/{verb}`, for whom the checks let through."""
    app = application(desk.replica, count, checks=checks)

    def add(name: str, verb: Verb) -> None:
        async def handle(request: web.Request) -> web.Response:
            body = await read_body(request, limit=limits.extender_body, within=limits.read_timeout)
            return json_answer(await verb(desk, body))

        app.router.add_post(f"/extender/{name}", handle)

    for name, verb in VERBS.items():
        add(name, verb)
    return app
