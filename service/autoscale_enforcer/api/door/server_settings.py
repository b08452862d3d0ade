"""The loop and the HTTP server as we set them up: one place, so that a bench can measure the same
server with nothing of ours behind it.
"""

from __future__ import annotations

from typing import Any

import uvloop

from autoscale_enforcer.config.settings import LimitSettings

run_loop = uvloop.run
"""Runs a coroutine as the process's main one."""

BACKLOG = 1024
"""Connections that the kernel keeps for us until we accept them."""

LINGER_SECONDS = 0.5
"""How long a refused client may go on sending. Closed at once, it would see a reset instead of the
refusal; aiohttp's own 10 s would read megabytes that nobody wants."""

WRITE_SECONDS = 0.5
"""For answers that are being sent when everything else of a drain is over."""


def runner_settings() -> dict[str, Any]:
    """For `web.AppRunner`. A line of log for each request would cost more than many an answer."""
    return {"handle_signals": False, "shutdown_timeout": WRITE_SECONDS}


def connection_settings(limits: LimitSettings) -> dict[str, Any]:
    """For each connection's `web.RequestHandler`."""
    return {
        "keepalive_timeout": limits.keep_alive.total_seconds(),
        "max_line_size": limits.header,
        "max_field_size": limits.header,
        "lingering_time": LINGER_SECONDS,
        "access_log": None,
    }
