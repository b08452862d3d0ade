"""What an extender answered to one call, what we found about it, and the words we find it in."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeVar

from autoscale_enforcer.replay.asked import UnreadableError, decode

T = TypeVar("T")

NAMES_SHOWN = 3
"""Names in one sentence; a call may offer thousands of nodes."""

TEXT_SHOWN = 200
"""Characters kept of a text that the service wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer, whole."""

    status: int
    body: bytes
    replica: str = ""
    """Who answered, as its X-Replica header says; empty without one."""
    seconds: float = 0.0
    """From opening the connection to the last byte."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A connection was made, but no whole answer came over it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one answer came to. No disagreements: a scheduler could have worked with it."""

    disagreements: list[str]
    refused: bool = False
    """The service said no, which may be legal."""
    passed: frozenset[str] = field(default=frozenset())
    """The nodes that a filter passed; empty for every other verb."""


def read_body(answer: Answer, kind: type[T]) -> T:
    """The answer's body as a `kind`. Raises UnreadableError with what to report."""
    if answer.status != 200:
        text = one_line(answer.body.decode("utf-8", "replace"))
        raise UnreadableError(f"answered HTTP {answer.status}: {text}")
    try:
        return decode(answer.body, kind)
    except UnreadableError as error:
        raise UnreadableError(f"the answer cannot be read: {error}") from error


def is_same_json(one: bytes, other: bytes) -> bool:
    """Whether two JSON texts say the same; only spacing, escapes and key order may differ."""
    try:
        return one == other or _canonical(one) == _canonical(other)
    except (ValueError, RecursionError):  # Python reads neither huge integers nor deep nesting
        return False


def _canonical(raw: bytes) -> str:
    # Compared as text, because to Python 1, 1.0 and true are equal.
    return json.dumps(json.loads(raw), sort_keys=True)


def listed(names: Collection[str]) -> str:
    """A few of the names, and how many more there are."""
    shown = ", ".join(sorted(names)[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return one_line(f"{shown} and {more} more" if more > 0 else shown)


def one_line(text: str) -> str:
    """`text` fit for a terminal: on one line, without control characters, of bounded length."""
    clean = "".join(char if char.isprintable() else " " for char in text).strip()
    return clean if len(clean) <= TEXT_SHOWN else f"{clean[:TEXT_SHOWN]}…"
