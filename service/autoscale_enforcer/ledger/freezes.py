"""Where an operator has stopped grants, since when, who and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import msgpack

EVERYWHERE = "*"
"""Stands for all nodes, those too that come later."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """One freeze: of a node, or of everything."""

    node: str
    """Its name, or EVERYWHERE."""
    since_ms: int
    """Redis' time."""
    who: str
    why: str

    @classmethod
    def decode(cls, node: bytes, note: bytes) -> Self:
        """As `freeze_grants` keeps it; ValueError where it is none of ours."""
        since, _, packed = note.partition(b" ")
        context: dict[str, Any] = msgpack.unpackb(packed) if packed else {}
        who, why = str(context.get("who", "")), str(context.get("why", ""))
        return cls(node.decode(), int(since), who, why)
