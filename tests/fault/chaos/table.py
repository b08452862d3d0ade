"""What campaigns found, as Markdown for docs/guarantees.md."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tests.fault.chaos.campaign import Happened, Result

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
    counts = [
        ("faults", len(happened)),
        ("operations", sum(each.operations for each in results)),
        ("acknowledged grants lost", sum(len(each.lost) for each in results)),
        ("doubled", sum(len(each.doubled) for each in results)),
        ("over-commits", sum(len(each.over_commits) for each in results)),
        ("grants dropped by Redis, noticed and repaired", sum(each.dropped for each in happened)),
        ("other breaches", sum(len(each.breaches) for each in results)),
    ]
    decided = [seconds for result in results for seconds in result.after_decision]
    more = [f"- grants after a decision of the Sentinels, s: {_spread(decided)}"] if decided else []
    return "\n".join([*(f"- {name}: {count:,}" for name, count in counts), *more])


def _findings(results: Sequence[Result]) -> list[str]:
    found = []
    for result in results:
        for name in ("lost", "doubled", "over_commits", "breaches"):
            found += [
                f"{name} (seed {result.plan.seed}): {each}"
                for each in getattr(result, name)[:SHOWN]
            ]
    return ["", *found] if found else []
