"""Figures: ours against a reference of the same run, over rounds that take turns."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.noise import Noise, Watched

if sys.version_info >= (3, 12):
    from typing import override
else:
    from typing_extensions import override


class WrongAnswer(Exception):
    """The service told something false: no figure of this run counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure with its limit."""

    name: str
    ours: Sequence[float]
    """One value a round."""
    reference: Sequence[float] | None
    """What it is divided by, round by round; None: it stands for itself."""
    bound: Literal["at least", "at most", "shown"]
    limit: float = 0.0
    unit: str = ""
    noise: Sequence[Noise] = field(default=())

    @property
    def values(self) -> list[float]:
        """What is judged, one a round."""
        if self.reference is None:
            return list(self.ours)
        return [a / b for a, b in zip(self.ours, self.reference, strict=True)]

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool:
        """Within its limit."""
        if self.bound == "shown":
            return True
        return self.value >= self.limit if self.bound == "at least" else self.value <= self.limit

    @override
    def __str__(self) -> str:
        values = self.values
        verdict = "" if self.bound == "shown" else "  met" if self.is_met else "  MISSED"
        text = f"{self.name}: {self.value:.3g}"
        if self.bound != "shown":
            text += f" ({self.bound} {self.limit:g})"
        text += f"{verdict}\n    rounds {min(values):.3g} to {max(values):.3g}"
        text += f"; ours {statistics.median(self.ours):.4g} {self.unit}"
        if self.reference is not None:
            text += f", reference {statistics.median(self.reference):.4g} {self.unit}"
        if self.noise:
            worst = max(self.noise, key=lambda each: each.others + each.stolen)
            text += f"\n    noisiest round: {worst}"
        return text


@dataclass(slots=True)
class Rounds:
    """Measures several things by turns: a machine that is slow for a while is so for all."""

    pids: Sequence[int]
    noise: list[Noise] = field(default_factory=list)

    def run(self, count: int, *measures: Callable[[], list[float]]) -> list[list[list[float]]]:
        """By measure, by value, by round. Every other round goes backwards."""
        found: list[list[list[float]]] = [[] for _ in measures]
        for number in range(count):
            order = range(len(measures))
            watched = Watched(self.pids)
            for at in order if number % 2 == 0 else reversed(order):
                found[at].append(measures[at]())
            self.noise.append(watched.noise())
        return [[list(each) for each in zip(*rounds, strict=True)] for rounds in found]
