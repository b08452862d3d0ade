"""How many reads a replica may ask of the API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from autoscale_enforcer.errors import ClusterUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    """Of all reads but the reflectors', which pace themselves."""

    per_second: float = 50
    """As many as kube-scheduler's own client allows itself (qps)."""
    burst: int = 100
    """kube-scheduler's too."""
    longest_wait: timedelta = timedelta(seconds=2)
    """Whoever would wait longer is told at once: extender and agents ask again by themselves."""


class ReadBudget:
    """A bucket of reads that fills steadily; who finds it empty waits, first come first served."""

    def __init__(
        self,
        settings: BudgetSettings | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or BudgetSettings()
        self._clock = clock
        self._left = float(self._settings.burst)
        self._counted_at = clock()
        self.waited = 0
        """Reads that had to wait."""
        self.refused = 0
        """Reads that would have waited too long."""

    async def take(self) -> None:
        """Return when one more read may be sent; raises ClusterUnavailable where that is too late.

        A caller cancelled while it waits has spent its read all the same.
        """
        wait = self._reserve()
        if wait > 0:
            self.waited += 1
            await asyncio.sleep(wait)

    def _reserve(self) -> float:
        """Spend one read, on credit where there is none; the seconds until it is earned."""
        now, rate = self._clock(), self._settings.per_second
        earned = (now - self._counted_at) * rate
        self._left = min(float(self._settings.burst), self._left + earned)
        self._counted_at = now
        wait = (1 - self._left) / rate
        if wait > self._settings.longest_wait.total_seconds():
            self.refused += 1
            raise ClusterUnavailable(f"more than {rate:g} reads a second of the API server")
        self._left -= 1
        return max(0.0, wait)
