"""How much is tried before an order of one node's steps is found, or is not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """What the service was run with, and how long to look."""

    hold_lifetime: int = 30_000_000_000
    """Nanoseconds of `--hold-lifetime`: a hold may be gone so long after it was asked for."""
    unanswered_for: int = 60_000_000_000
    """Nanoseconds after which a call without an answer is not on its way any more: longer than
    anything may be paused or held up, and then answered late.
    """
    stamp_lag: int = 500_000_000
    """Nanoseconds by which a replica may reckon Redis' clock too early: its socket timeout."""
    most_tries: int = 200_000
    """Steps tried in one full search before it is given up as undecided."""


class GivenUp(Exception):
    """More was tried than the settings allow."""


class Unanswered(IntEnum):
    """When a call that nobody got an answer to is taken to have had an effect."""

    NEVER = 0
    WHERE_NEEDED = 1
    """Where an answer is explained in no other way, and then just before it: as early as that is
    as good as earlier, but where a fact has taken the room meanwhile.
    """
    ANYWHERE = 2


class Width(NamedTuple):
    """How much is tried."""

    unanswered: Unanswered
    every_order: bool
    """False: where two orders of two steps end alike, one of them is enough. That is quick, but
    two steps may need a third between them.
    """


QUICK = Width(Unanswered.NEVER, every_order=False)
WITH_LOST = Width(Unanswered.WHERE_NEEDED, every_order=False)
ORDERS = Width(Unanswered.NEVER, every_order=True)
LOST_EARLIER = Width(Unanswered.ANYWHERE, every_order=False)
ALL = Width(Unanswered.ANYWHERE, every_order=True)

QUICK_TRIES = 5_000
"""Steps tried for one answer before a full search is made."""
FEW = 8
"""Ways carried along while the order of the answers explains them."""
