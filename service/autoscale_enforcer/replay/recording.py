"""Recordings: one call a line, `{"t": seconds, "verb": …, "request": the body as it was sent}`.

A file is read line by line, so its length costs no memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from autoscale_enforcer.errors import ServiceError
from autoscale_enforcer.replay.asked import Asked, UnreadableError, decode, read_asked


class RecordingError(ServiceError):
    """A file that is no recording; the text names the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One recorded call: what to send, and what its answer is judged against."""

    line: int
    verb: str
    request: bytes
    """The body, to the byte as recorded."""
    asked: Asked


class _Line(msgspec.Struct):
    verb: str
    request: msgspec.Raw


def read_calls(path: Path) -> Iterator[Call]:
    """Each call of the file in order; blank lines are skipped.

    Raises RecordingError at the first line that is no call, after giving those before it.
    """
    try:
        with path.open("rb") as lines:
            for number, text in enumerate(lines, start=1):
                if text.strip():
                    yield _read_line(number, text)
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}") from error


def count_calls(path: Path) -> int:
    """How many calls the file holds, each of its lines having been read once.

    Meant to come before the first call is sent: a file with a bad line then sends nothing.
    Raises RecordingError for a bad line, and for a file without calls, which would prove nothing.
    """
    count = sum(1 for _ in read_calls(path))
    if count == 0:
        raise RecordingError(f"{path}: holds no calls")
    return count


def _read_line(number: int, text: bytes) -> Call:
    try:
        line = decode(text, _Line)
        asked = read_asked(line.verb, line.request)
    except UnreadableError as error:
        raise RecordingError(f"line {number}: {error}") from error
    return Call(line=number, verb=line.verb, request=bytes(line.request), asked=asked)
