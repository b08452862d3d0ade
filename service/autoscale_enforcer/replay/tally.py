"""Counts and disagreements, gathered call by call. No printing here: see `report`."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from autoscale_enforcer.replay.recording import Call
from autoscale_enforcer.replay.verdict import Answer, NoAnswer, Verdict

KEPT_DISAGREEMENTS = 50
"""Disagreements kept in full, so that a service that is all wrong fills no memory or screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """One thing that is wrong with one answer."""

    line: int
    verb: str
    pod: str
    text: str


@dataclass(slots=True)
class Counts:
    """Calls of one verb, or of all."""

    calls: int = 0
    refused: int = 0
    seconds: list[float] = field(default_factory=list)
    replicas: Counter[str] = field(default_factory=Counter)
    """Answers by the replica that gave them."""

    def add(self, answer: Answer | NoAnswer, *, refused: bool) -> None:
        """Count one call."""
        self.calls += 1
        self.refused += refused
        if isinstance(answer, Answer):
            self.seconds.append(answer.seconds)
            if answer.replica:
                self.replicas[answer.replica] += 1

    def milliseconds_at(self, share: float) -> float | None:
        """The time within which that share of the calls was answered; None without answers."""
        if not self.seconds:
            return None
        rank = max(1, math.ceil(share * len(self.seconds)))
        return sorted(self.seconds)[rank - 1] * 1000


@dataclass(slots=True)
class Tally:
    """All that a replay found."""

    verbs: dict[str, Counts] = field(default_factory=dict)
    total: Counts = field(default_factory=Counts)
    disagreements: list[Disagreement] = field(default_factory=list)
    disagreement_count: int = 0
    unreachable: str | None = None
    """Why the replay stopped before its end, in words."""

    def add(self, call: Call, answer: Answer | NoAnswer, verdict: Verdict) -> None:
        """Count one call, its answer, and what was found about it."""
        for counts in (self.verbs.setdefault(call.verb, Counts()), self.total):
            counts.add(answer, refused=verdict.refused)
        for text in verdict.disagreements:
            self.disagreement_count += 1
            if len(self.disagreements) < KEPT_DISAGREEMENTS:
                self.disagreements.append(
                    Disagreement(line=call.line, verb=call.verb, pod=call.asked.pod.name, text=text)
                )
