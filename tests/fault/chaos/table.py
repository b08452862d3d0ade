"""What campaigns found, as Markdown for docs/guarantees.md.

    python -m tests.fault.chaos.table SAVED ...

sums up several, each saved with `--save`.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.fault.chaos.result import Happened, Result

HEAD = (
    *("fault", "times", "recovered after, s"),
    *("no reserve for, s", "no growth for, s", "grants dropped by Redis", "noted by offset"),
)
"""Seconds are median / worst."""
SHOWN = 20
"""Findings of a kind that are printed; the first tell most."""


def report(results: Sequence[Result]) -> str:
    """The table of all of them together, and what must not be."""
    happened = [each for result in results for each in result.happened]
    lines = [
        f"| {' | '.join(HEAD)} |",
        f"|{' --- |' * len(HEAD)}",
        *(_row(kind, happened) for kind in sorted({each.kind for each in happened})),
        "",
        _totals(results, happened),
        *_findings(results),
    ]
    return "\n".join(lines)


def _row(kind: str, happened: Sequence[Happened]) -> str:
    same = [each for each in happened if each.kind == kind]
    cells = [
        kind,
        str(len(same)),
        _spread([each.recovered_after for each in same]),
        _spread([each.gaps["reserve"] for each in same]),
        _spread([each.gaps["permit"] for each in same]),
        str(sum(each.dropped for each in same)),
        str(sum(each.noted for each in same)),
    ]
    return f"| {' | '.join(cells)} |"


def _spread(seconds: Sequence[float]) -> str:
    """Median and worst."""
    return f"{statistics.median(seconds):.1f} / {max(seconds):.1f}"


def _totals(results: Sequence[Result], happened: Sequence[Happened]) -> str:
    counts = Counter(
        {
            "faults": len(happened),
            "operations": sum(each.operations for each in results),
            "grants dropped by Redis, noticed and repaired": sum(each.dropped for each in happened),
        }
    )
    for result in results:
        counts.update({name: len(found) for name, found in result.findings.items()})
    decided = [seconds for result in results for seconds in result.after_decision]
    lines = [f"- {name}: {count:,}" for name, count in counts.items()]
    if decided:
        lines.append(f"- grants after a decision of the Sentinels, s: {_spread(decided)}")
    return "\n".join(lines)


def _findings(results: Sequence[Result]) -> list[str]:
    found = [
        f"{name} (seed {result.seed}): {text}"
        for result in results
        for name, texts in result.findings.items()
        for text in texts[:SHOWN]
    ]
    return ["", *found] if found else []


def main(files: Sequence[str]) -> None:
    """The table of several campaigns, from what each has saved."""
    results = [msgspec.json.decode(Path(file).read_bytes(), type=Result) for file in files]
    sys.stdout.write(f"{report(results)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
