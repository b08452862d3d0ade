"""Notices that room has come back, at whichever replica, and rings for kube-scheduler.

kube-scheduler tries a refused pod again only when something in the API changes, and it hears of a
deletion before the ledger does: so the bell rings after the ledger has changed, at most once a
second, and always after the last change.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.rows import NodeRow

LOOK_EVERY = 0.25
"""Seconds; a look is one empty delta read where nothing has changed."""
RING_EVERY = 1.0
"""Seconds between rings at least: what the API server is asked to bear."""

OWED_FOR = 5.0
"""Seconds for which a ring that no pod waits for is still owed: a pod that was refused just before
may not have been heard of yet."""
STALE_AFTER = 2.0
"""Seconds without a look, after which what was known before says nothing: another replica led."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A node as it was at the last look."""

    row: NodeRow
    cpu: int
    mem: int
    is_settled: bool

    def has_more_than(self, before: _Seen | None) -> bool:
        """Room has come back since then, or the node has come."""
        if self.row.absent:
            return False
        if before is None or before.row.absent:
            return True
        return self.cpu > before.cpu or self.mem > before.mem or self.is_settled > before.is_settled


class RoomWatch:
    """Looks at the ledger's nodes, each time it is asked to."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        is_wanted: Callable[[], bool],
        ring: Callable[[], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._is_wanted, self._ring = ledger, is_wanted, ring
        self._clock = clock
        self._seen: dict[NodeName, _Seen] = {}
        self._version = 0
        self._frozen: set[str] = set()
        self._looked_at = self._rang_at = self._owed_since = float("-inf")
        self._owes = False
        self.rings = 0

    async def look(self) -> None:
        """Look once; ring if that is due. Raises what the look or the ring raises."""
        await self._ledger.mirror.refresh()
        now = self._clock()
        # After a while without looks: the last leader may have died before it rang.
        if self._see_more_room() or now - self._looked_at > STALE_AFTER:
            self._owes, self._owed_since = True, now
        self._looked_at = now
        if not self._owes:
            return
        if not self._is_wanted():
            self._owes = now - self._owed_since < OWED_FOR
        elif now - self._rang_at >= RING_EVERY:
            await self._do_ring(now)

    async def _do_ring(self, now: float) -> None:
        # Before the ring: a change while it is under way is owed another one.
        self._owes, self._rang_at = False, now
        self.rings += 1
        try:
            await self._ring()
        except BaseException:
            self._owes = True
            raise

    def _see_more_room(self) -> bool:
        """Whether any node has, or may have had, more room than before; a node that came has.

        What came and went between two looks leaves no trace in the sums, but whom it had refused
        waits for it: a Binding is refused in 20 ms, and a look comes every 250. So a node that
        has changed more than once may have had more.
        """
        mirror, before, after = self._ledger.mirror, self._seen, dict[NodeName, _Seen]()
        frozen, self._frozen = self._frozen, set(mirror.freezes)
        is_more, changed, gone = bool(frozen - self._frozen), 0, len(before)
        for name, row in mirror.nodes.items():
            seen = before.get(name)
            gone -= seen is not None
            changed += seen is None or seen.row.version != row.version
            # A changed row is another object, and one settled stays so as long as it is the same.
            if seen is None or seen.row is not row or not seen.is_settled:
                now = self._as_it_is(row)
                is_more = is_more or now.has_more_than(seen)
                seen = now
            after[name] = seen
        changes = mirror.version - self._version
        self._seen, self._version = after, mirror.version
        return is_more or changes != changed + gone

    def _as_it_is(self, row: NodeRow) -> _Seen:
        return _Seen(
            row,
            row.cap_cpu - row.reserved_cpu - row.ignored_cpu,
            row.cap_mem - row.reserved_mem - row.ignored_mem,
            not self._ledger.mirror.is_unsettled(row),
        )
