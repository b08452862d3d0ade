"""Notices that room has come back, at whichever replica, and rings for kube-scheduler.

kube-scheduler tries a refused pod again only when something in the API changes, and it hears of a
deletion before the ledger does: so the bell rings after the ledger has changed, at most once a
second, and always after the last change.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.ids import NodeName

LOOK_EVERY = 0.25
"""Seconds; a look is one empty delta read where nothing has changed."""
RING_EVERY = 1.0
"""Seconds between rings at least: what the API server is asked to bear."""

_Room = tuple[int, int, bool]


class RoomWatch:
    """Looks at the ledger's nodes, each time it is asked to."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        is_wanted: Callable[[], bool],
        ring: Callable[[], Awaitable[None]],
    ) -> None:
        self._ledger, self._is_wanted, self._ring = ledger, is_wanted, ring
        self._known: dict[NodeName, _Room] = {}
        self._owes = False
        self._rang_at = 0.0
        self.rings = 0

    async def look(self) -> None:
        """Look once; ring if that is due. Raises what the look or the ring raises."""
        await self._ledger.mirror.refresh()
        now = self._room()
        known, self._known = self._known, now
        if known and any(_is_more(known.get(name), room) for name, room in now.items()):
            self._owes = True
        if self._owes and not self._is_wanted():
            self._owes = False
        if self._owes and time.monotonic() - self._rang_at >= RING_EVERY:
            # Before the ring: a change while it is under way is owed another one.
            self._owes, self._rang_at = False, time.monotonic()
            self.rings += 1
            try:
                await self._ring()
            except BaseException:
                self._owes = True
                raise

    def _room(self) -> dict[NodeName, _Room]:
        mirror = self._ledger.mirror
        return {
            name: (
                row.cap_cpu - row.reserved_cpu - row.ignored_cpu,
                row.cap_mem - row.reserved_mem - row.ignored_mem,
                not mirror.is_unsettled(row),
            )
            for name, row in mirror.nodes.items()
            if not row.absent
        }


def _is_more(was: _Room | None, now: _Room) -> bool:
    return was is None or any(new > old for new, old in zip(now, was, strict=True))
