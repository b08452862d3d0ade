"""How many requests of a port are worked on at once, and how many of them one address may have.

A request counts from when it has come whole until its handler has ended, even where its client
went away meanwhile: it is the work that is limited, and a body that trickles in is none yet.
"""

from __future__ import annotations

from collections import Counter

from autoscale_enforcer.errors import Overloaded


class Turns:
    """The requests in flight at one port."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._share = max(1, limit // 2)
        self._running: Counter[str] = Counter()
        self.count = 0

    def check(self, address: str) -> None:
        """Overloaded where the address could not begin another request now."""
        if self.count >= self._limit or self._running[address] >= self._share:
            raise Overloaded("too many requests at once: ask again")

    def begin(self, address: str) -> None:
        """One more; Overloaded where that would be too many."""
        self.check(address)
        self._running[address] += 1
        self.count += 1

    def end(self, address: str) -> None:
        """One that was begun has ended."""
        self._running[address] -= 1
        if not self._running[address]:
            del self._running[address]
        self.count -= 1
