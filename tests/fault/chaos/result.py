"""What a campaign is to do, and what it has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long, how many, and by which seed."""

    seed: int
    minutes: float
    folder: Path
    """For the history."""
    clients: int = 24
    nodes: int = 24
    only: str = ""
    """Kinds of fault whose name has this in it; empty: all."""


@dataclass(slots=True)
class Happened:
    """One fault, and what it did to callers."""

    kind: str
    recovered_after: float
    """Seconds after its end."""
    gaps: dict[str, float]
    """Longest time without a grant, by what was granted."""
    dropped: int = 0
    """Acknowledged grants that Redis no longer had."""
    noted: int = 0
    """How often a replica has noted, by replication offsets, that this is or may be so."""


@dataclass(slots=True)
class Result:
    """All that a campaign has found."""

    seed: int
    happened: list[Happened] = field(default_factory=list)
    operations: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    over_commits: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    """Nodes of whose answers no order of events is the explanation."""
    undecided: list[str] = field(default_factory=list)
    """Nodes for which the search for one was given up."""
    breaches: list[str] = field(default_factory=list)
    """Whatever else must not be: verify, drift, a fault that did not end."""
    after_decision: list[float] = field(default_factory=list)
    """Seconds from the Sentinels' decision to the next grant."""

    @property
    def findings(self) -> dict[str, list[str]]:
        """Of all that must not be, what there was."""
        return {
            "acknowledged grants lost": self.lost,
            "doubled": self.doubled,
            "over-commits": self.over_commits,
            "nodes whose answers no order explains": self.unexplained,
            "nodes whose answers were not decided": self.undecided,
            "other breaches": self.breaches,
        }

    @property
    def is_good(self) -> bool:
        """There was nothing of it. A search that was given up proves nothing, so it is counted and
        shown, and fails no campaign.
        """
        undecided = len(self.undecided)
        return sum(map(len, self.findings.values())) == undecided
