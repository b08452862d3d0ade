"""How much of large bodies a port keeps at once, so that a few callers cannot fill the memory.

Counted is what a body has beyond a small one. Small ones are limited by their number.
"""

from __future__ import annotations

from collections import Counter

from autoscale_enforcer.errors import Overloaded

SMALL = 64 * 1024
"""Bytes of each body that are not counted."""


class Bodies:
    """The large bodies of one port: four of the largest size, two of them for one address."""

    def __init__(self, largest: int) -> None:
        self._limit, self._share = 4 * largest, 2 * largest
        self._held: Counter[str] = Counter()
        self.held = 0
        """Bytes."""
        self.refused = 0
        """How many there was no room for."""

    def hold(self, address: str, size: int) -> None:
        """So many bytes more; Overloaded where there is no room for them."""
        if self.held + size > self._limit or self._held[address] + size > self._share:
            self.refused += 1
            raise Overloaded("too many large bodies at once: ask again")
        self._held[address] += size
        self.held += size

    def drop(self, address: str, size: int) -> None:
        """So many bytes that were held are needed no longer."""
        self.held -= size
        self._held[address] -= size
        if not self._held[address]:
            del self._held[address]
