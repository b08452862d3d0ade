"""Turns py-spy's raw stacks into a table of where the time went, for the docs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path


def shares(lines: Iterable[str]) -> tuple[Counter[str], Counter[str], int]:
    """Samples by function, itself and with what it calls, and how many there were."""
    alone: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    total = 0
    for line in lines:
        stack, _, count = line.rpartition(" ")
        frames = [_short(each) for each in stack.split(";")]
        samples = int(count)
        total += samples
        alone[frames[-1]] += samples
        for each in set(frames):
            whole[each] += samples
    return alone, whole, total


def _short(frame: str) -> str:
    """Function and module, without the line."""
    name, _, place = frame.strip().partition(" (")
    path = place.rstrip(")").rpartition(":")[0] or place.rstrip(")")
    for marker in ("site-packages/", "service/"):
        path = path.rpartition(marker)[2]
    return f"{name} ({path})" if path else name


def table(lines: Iterable[str], most: int = 25) -> str:
    """Percent itself, percent with callees, function."""
    alone, whole, total = shares(lines)
    rows = ["  self  total"]
    for name, count in alone.most_common(most):
        rows.append(f"{100 * count / total:5.1f}% {100 * whole[name] / total:5.1f}%  {name}")
    rows.append("by total:")
    for name, count in whole.most_common(2 * most):
        rows.append(f"{100 * alone[name] / total:5.1f}% {100 * count / total:5.1f}%  {name}")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(table(Path(sys.argv[1]).read_text().splitlines()) + "\n")
