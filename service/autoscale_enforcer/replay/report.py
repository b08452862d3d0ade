"""What a replay found, for people (a table) and for programs (a JSON document)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autoscale_enforcer.replay.tally import Counts, Tally
from autoscale_enforcer.replay.verdict import one_line

_HEAD = ("verb", "calls", "refused", "p50 ms", "p99 ms", "replicas that answered")
_TEXT_COLUMNS = frozenset({"verb", "replicas that answered"})


def table(tally: Tally) -> str:
    """A line for each verb and one for all, then the disagreements."""
    rows = [_HEAD, *(_row(verb, counts) for verb, counts in tally.verbs.items())]
    rows.append(_row("all", tally.total))
    return "\n".join([*_aligned(rows), "", *_disagreement_lines(tally)])


def _row(verb: str, counts: Counts) -> tuple[str, ...]:
    return (
        verb,
        str(counts.calls),
        str(counts.refused),
        _milliseconds(counts.milliseconds_at(0.50)),
        _milliseconds(counts.milliseconds_at(0.99)),
        _replicas(counts),
    )


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _replicas(counts: Counts) -> str:
    if not counts.replicas:
        return "-"
    names = ", ".join(one_line(name) for name in sorted(counts.replicas))
    return f"{len(counts.replicas)}: {names}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if name in _TEXT_COLUMNS else cell.rjust(width)
            for cell, width, name in zip(row, widths, _HEAD, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def _disagreement_lines(tally: Tally) -> Iterator[str]:
    if tally.disagreement_count == 0:
        all_of_them = "every answer that came" if tally.unreachable else "every answer"
        yield f"No disagreement: {all_of_them} was legal."
        return
    yield f"Disagreements: {tally.disagreement_count}"
    for found in tally.disagreements:
        yield f"  line {found.line}  {found.verb}  {one_line(found.pod)}  {found.text}"
    hidden = tally.disagreement_count - len(tally.disagreements)
    if hidden:
        yield f"  … and {hidden} more"


def document(tally: Tally) -> dict[str, Any]:
    """The same as `table`, as one JSON object."""
    return {
        "verbs": {verb: _counts(counts) for verb, counts in tally.verbs.items()},
        "all": _counts(tally.total),
        "disagreementCount": tally.disagreement_count,
        "disagreements": [
            {"line": found.line, "verb": found.verb, "pod": found.pod, "text": found.text}
            for found in tally.disagreements
        ],
        "unreachable": tally.unreachable,
    }


def _counts(counts: Counts) -> dict[str, Any]:
    return {
        "calls": counts.calls,
        "refused": counts.refused,
        "p50Ms": _rounded(counts.milliseconds_at(0.50)),
        "p99Ms": _rounded(counts.milliseconds_at(0.99)),
        "replicas": dict(sorted(counts.replicas.items())),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
