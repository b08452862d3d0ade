"""Up to where callers were told what is in the books, and whether a new primary has all of it.

A primary counts what it writes, as its replication offset. A server that was promoted knows up to
which offset it has the history of the one before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Loss(StrEnum):
    """What became of what we told, as a new primary's offsets show it."""

    KEPT = "kept"
    """It has all of it."""
    DROPPED = "dropped"
    """It lacks the newest part: acknowledged writes are gone."""
    UNCLEAR = "unclear"
    """It does not know the history in which we told it."""

    @property
    def words(self) -> str:
        """For people."""
        return {
            Loss.KEPT: "it has all that this replica has told",
            Loss.DROPPED: "it lacks acknowledged writes",
            Loss.UNCLEAR: "whether it lacks acknowledged writes cannot be known",
        }[self]


@dataclass(frozen=True, slots=True)
class Told:
    """Everything that this replica has told was written up to there."""

    replid: str
    offset: int

    @property
    def place(self) -> str:
        """For people: the history, and where in it."""
        return f"{self.replid} {self.offset}"

    def became(self, info: str) -> Loss:
        """What became of it on the server whose INFO replication this is."""
        found = dict(re.findall(r"^(\w+):(\S+)\r?$", info, re.MULTILINE))
        if found.get("master_replid") == self.replid:
            return Loss.KEPT
        if found.get("master_replid2") != self.replid:
            return Loss.UNCLEAR
        is_missing = self.offset >= int(found["second_repl_offset"])
        return Loss.DROPPED if is_missing else Loss.KEPT


@dataclass(slots=True)
class Noticed:
    """What this replica has seen of Redis since it started."""

    epochs: int = 0
    """New epochs of the books, the first one not counted."""
    drops: int = 0
    """Primaries that lacked what this replica had told."""
    drops_unclear: int = 0
    """Primaries of which nobody can say."""
    unwaited: int = 0
    """Pipelines whose changes were not safe enough in time, so that nothing was told."""
    connects: int = 0
    """Times that a primary was found."""

    def count(self, loss: Loss) -> None:
        """Another primary, and what became of what was told."""
        self.drops += loss is Loss.DROPPED
        self.drops_unclear += loss is Loss.UNCLEAR
