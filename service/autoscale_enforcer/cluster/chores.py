"""Runs a leader's chores while this replica leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable

log = logging.getLogger(__name__)

FAILED_PAUSE = 1.0
"""Seconds after a chore that failed; the next attempt is as good."""


def while_leading(
    is_leading: Callable[[], bool], chore: Callable[[], Awaitable[object]], *, every: float
) -> Callable[[], Awaitable[None]]:
    """Work for `Background`: the chore every so many seconds, at the leader only."""

    async def work() -> None:
        while True:
            pause = every
            if is_leading():
                try:
                    await chore()
                except (ClusterUnavailable, LedgerUnavailable) as error:
                    log.warning("chore: %s", error)
                    pause = max(every, FAILED_PAUSE)
            await asyncio.sleep(pause)

    return work
