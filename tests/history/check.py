"""Judges a history: is there, for each node, one order of events that explains every answer?

    python -m tests.history.check history.jsonl ...

prints the smallest counterexample of each node that has one, and ends with 1; with 2 where a
search was given up. Nodes are judged one by one, for nothing binds them but moves (`steps`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.history.effort import SearchSettings
from tests.history.record import Operation, read_history
from tests.history.search import explain
from tests.history.shrink import Counterexample, smallest
from tests.history.steps import steps_by_node

SECOND = 1_000_000_000


@dataclass(slots=True)
class Report:
    """What was judged, and what no order explains."""

    operations: int
    nodes: int
    counterexamples: list[Counterexample] = field(default_factory=list)

    @property
    def is_linearizable(self) -> bool:
        """Every answer at every node is explained."""
        return not self.counterexamples

    @property
    def is_decided(self) -> bool:
        """No search was given up."""
        return all(each.is_proven for each in self.counterexamples)

    @property
    def text(self) -> str:
        """For people: what is wrong, if anything is."""
        words = f"{self.operations} operations on {self.nodes} nodes"
        if self.is_linearizable:
            return f"{words}: every answer is explained"
        return "\n\n".join([words, *(each.text for each in self.counterexamples)])


def check(
    history: Sequence[Operation], *, settings: SearchSettings | None = None, most: int = 5
) -> Report:
    """The report on a history in the order of its calls; `most` counterexamples at most, not
    counting nodes for which the search was given up.
    """
    settings = settings or SearchSettings()
    nodes = steps_by_node(history)
    report = Report(len(history), len(nodes))
    for node in sorted(nodes):
        steps = nodes.pop(node)
        wrong = explain(steps, settings=settings)
        if wrong:
            report.counterexamples.append(smallest(steps, wrong, settings=settings))
            if sum(each.is_proven for each in report.counterexamples) == most:
                break
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0: all is explained, 1: something is not, 2: a search was given up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--hold-lifetime", type=float, default=30, help="seconds, as of `serve`")
    given = parser.parse_args(arguments)
    settings = SearchSettings(hold_lifetime=int(given.hold_lifetime * SECOND))
    report = check(read_history(given.files), settings=settings)
    sys.stdout.write(f"{report.text}\n")
    return 0 if report.is_linearizable else 1 if report.is_decided else 2


if __name__ == "__main__":
    sys.exit(main())
