"""The end of a log file, for the screen of whoever wonders why a process has died."""

from __future__ import annotations

from pathlib import Path

_LINES = 15
_BYTES = 8192
_COLUMNS = 200


def last_lines(file: Path, *, since: int = 0) -> list[str]:
    """Its last few lines, indented; of what was written after its first `since` bytes."""
    size = file.stat().st_size
    with file.open("rb") as log:
        log.seek(max(since, size - _BYTES))
        lines = log.read().decode(errors="replace").splitlines()
    return [f"  {line[:_COLUMNS]}" for line in lines[-_LINES:]]
