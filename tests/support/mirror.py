"""A mirror that is told what to take in, without a Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoscale_enforcer.ledger.call import Call
from autoscale_enforcer.ledger.mirror import Mirror
from autoscale_enforcer.ledger.scripts import Script, load_scripts
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.rows import NodeRow

Changes = list[Any]
"""An answer of `read_changes`."""

SCRIPTS = load_scripts()


@dataclass
class _Answering:
    """Stands in the pipeline's place."""

    answer: Changes = field(default_factory=list)

    def script(self, name: str) -> Script:
        return SCRIPTS[name]

    def send(self, call: Call) -> None:
        """Nothing is on its way before `run`."""

    async def run(self, call: Call) -> None:
        assert call.on_answer
        call.on_answer(self.answer)

    def redis_us(self) -> int:
        return 1_000_000


def full(
    rows: Mapping[NodeName, NodeRow],
    *,
    settles_at_ms: int = 0,
    state: bytes = b"settled",
    frozen: str | None = None,
) -> Changes:
    """Every node that there is."""
    freezes = [frozen.encode(), b"1 "] if frozen else []
    return ["FULL", b"e", 1, state, settles_at_ms, freezes, *_pairs(rows)]


def delta(rows: Mapping[NodeName, NodeRow | None]) -> Changes:
    """Nodes that have changed; None: they have left."""
    return ["DELTA", b"e", 1, b"settled", 0, [], *_pairs(rows)]


def mirror_that_hears(answer: Changes) -> tuple[Mirror, Callable[[Changes], None]]:
    """A mirror that has taken that in, and what makes it take in more."""
    pipeline = _Answering()
    mirror = Mirror(pipeline)  # type: ignore[arg-type]

    def hear(changes: Changes) -> None:
        pipeline.answer = changes
        asyncio.run(mirror.refresh())

    hear(answer)
    return mirror, hear


def _pairs(rows: Mapping[NodeName, NodeRow | None]) -> list[bytes]:
    return [
        part
        for name, row in rows.items()
        for part in (name.encode(), row.encode().encode() if row else b"")
    ]
