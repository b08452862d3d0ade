"""Which connections a port keeps when more want in than it has places for.

A place is given up by the address that holds the most of them, so that one caller's flood costs
nobody else a place. Of that address' connections those go first that never sent a whole request,
the oldest before the others; then those that wait for their next request, the longest first. What
is being answered is never given up.

Bookkeeping only: no sockets, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Place:
    """One connection's, from its accept to its end."""

    caller: Caller
    give_up: Callable[[], None] = lambda: None
    """Ends the connection at once; set by whoever holds it."""


@dataclass(slots=True, eq=False)
class Caller:
    """One address with connections of its own, each in one of the first two while it can go."""

    address: str
    unproven: dict[Place, None] = field(default_factory=dict)
    """Never sent a whole request; in the order in which they came."""
    idle: dict[Place, None] = field(default_factory=dict)
    """Wait for their next request; in the order in which they began to."""
    busy: set[Place] = field(default_factory=set)

    @property
    def spare(self) -> int:
        """How many of its places could be taken away."""
        return len(self.unproven) + len(self.idle)

    @property
    def worst(self) -> Place:
        """The first to go; there is one while `spare` is not 0."""
        return next(iter(self.unproven or self.idle))


class Places:
    """The places of one port."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._callers: dict[str, Caller] = {}
        self._parting: set[Place] = set()
        """Given up, and not empty yet: they count until their connection has really ended."""
        self.taken = 0
        self.evicted = 0
        """How often one was taken away for a newcomer."""
        self.refused = 0
        """How often a newcomer was turned away, all places being busy."""

    @property
    def is_full(self) -> bool:
        """No newcomer can have a place now."""
        return self.taken >= self._limit

    def make_room(self) -> bool:
        """Whether a place is about to become empty, another giving it up where need be.

        False: all of them are busy.
        """
        if self._parting:
            return True
        greedy = max(self._callers.values(), key=_spare, default=None)
        if greedy is None or not greedy.spare:
            return False
        place = greedy.worst
        self._remove(place)
        self._forget(greedy)
        self._parting.add(place)
        self.evicted += 1
        place.give_up()
        return True

    def take(self, address: str) -> Place:
        """A place for a newcomer; only where they are not full."""
        caller = self._callers.get(address)
        if caller is None:
            caller = self._callers[address] = Caller(address)
        place = Place(caller)
        caller.unproven[place] = None
        self.taken += 1
        return place

    def begin(self, place: Place) -> None:
        """A whole request has come: it keeps its place until that is answered."""
        if self._remove(place):
            place.caller.busy.add(place)

    def end(self, place: Place) -> None:
        """The request is answered. Safe to repeat, and where none was begun."""
        if place in place.caller.busy:
            place.caller.busy.remove(place)
            place.caller.idle[place] = None

    def leave(self, place: Place) -> None:
        """The connection has ended. Safe to repeat."""
        if place in self._parting:
            self._parting.remove(place)
        elif self._remove(place):
            self._forget(place.caller)
        else:
            return
        self.taken -= 1

    def _forget(self, caller: Caller) -> None:
        if not (caller.unproven or caller.idle or caller.busy):
            self._callers.pop(caller.address, None)

    @staticmethod
    def _remove(place: Place) -> bool:
        caller = place.caller
        for group in (caller.unproven, caller.idle):
            if place in group:
                del group[place]
                return True
        if place in caller.busy:
            caller.busy.remove(place)
            return True
        return False


def _spare(caller: Caller) -> int:
    return caller.spare
