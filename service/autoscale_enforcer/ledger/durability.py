"""How safe a change must be before anybody is told of it, and what Redis is asked for that."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any


class Durability(StrEnum):
    """What must have happened to a change before its answer goes out."""

    NONE = "none"
    """It is in the primary's memory."""
    REPLICA = "replica"
    """So many replicas of the primary have it in theirs, too."""
    AOF = "aof"
    """It is on the primary's disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What is waited for, once for each pipeline that may tell something."""

    durability: Durability = Durability.NONE
    replicas: int = 1
    """With `replica`: how many must have it."""
    timeout: timedelta = timedelta(seconds=0.25)
    """Below the socket timeout, or a connection would be given up instead."""

    @property
    def command(self) -> tuple[str, ...]:
        """To be sent behind the changes, over the same connection; empty: nothing is waited for.

        It covers all that the server had done when the connection last wrote, at any client's
        wish. Where the connection has not written, it covers nothing, and says that all is well.
        """
        milliseconds = str(max(1, int(self.timeout.total_seconds() * 1000)))
        match self.durability:
            case Durability.NONE:
                return ()
            case Durability.REPLICA:
                return ("WAIT", str(self.replicas), milliseconds)
            case Durability.AOF:
                return ("WAITAOF", "1", "0", milliseconds)

    def missing(self, answer: Any) -> str:
        """Why the changes are not safe enough to tell; empty: they are."""
        if self.durability is Durability.REPLICA and answer < self.replicas:
            return f"{answer} of {self.replicas} replicas of Redis have it"
        if self.durability is Durability.AOF and answer[0] < 1:
            return "it is not on Redis' disk"
        return ""
