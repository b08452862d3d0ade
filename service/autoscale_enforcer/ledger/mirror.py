"""A replica's table of node rows, brought up to date before each decision that reads it.

Never the truth: a filter reads it, a reserve decides again inside Redis.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

from autoscale_enforcer.ledger.call import Call
from autoscale_enforcer.ledger.freezes import EVERYWHERE, Freeze
from autoscale_enforcer.ledger.pipeline import Pipeline
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import NodeRow, Room

CHANGES_KEPT = 10_000
"""Of rows, the newest: whoever follows them and has missed more looks at every node again."""


class Mirror:
    """Node rows by name, as of the last `refresh`."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._epoch, self.version = "", 0
        """Each change of a node's row since has raised the version by one."""
        self._queued: Call | None = None
        self.nodes: dict[NodeName, NodeRow] = {}
        self.rooms: dict[NodeName, Room] = {}
        """The same of those that are present, reduced to what a filter compares."""
        self._largest: Resources | None = None
        self.revision = 0
        """Raised by each row that is taken in."""
        self._changed: deque[NodeName] = deque(maxlen=CHANGES_KEPT)
        self.freezes: dict[str, Freeze] = {}
        """By node, or EVERYWHERE."""
        self.is_suspect = True
        self._settle_us = 0

    async def refresh(self, asked: Call | None = None) -> None:
        """Take in what changed at any replica until now, or until that was asked; concurrent calls
        share a round trip.
        """
        await self._pipeline.run(asked or self.ask())

    def ask(self) -> Call:
        """Ask for it together with whatever is sent next; who wants to know waits in `refresh`."""
        queued = self._queued
        # A call that ended without being sent would answer with its old error for ever.
        if queued is None or queued.is_sent or queued.is_done:
            queued = self._queued = Call(
                self._pipeline.script("read_changes"), self._since, on_answer=self._take
            )
        self._pipeline.send(queued)
        return queued

    @property
    def largest(self) -> Resources:
        """The largest CPU and the largest memory of any node."""
        if self._largest is None:
            rooms = self.rooms.values()
            self._largest = Resources(
                max((room[2] for room in rooms), default=0),
                max((room[3] for room in rooms), default=0),
            )
        return self._largest

    def changed_since(self, revision: int) -> set[NodeName] | None:
        """Nodes that have come, changed or left since then; None: any may have."""
        behind = self.revision - revision
        if behind > len(self._changed):
            return None
        return set(islice(reversed(self._changed), behind))

    @property
    def is_settled(self) -> bool:
        """No node is unsettled."""
        return not self.is_suspect and self._pipeline.redis_us() >= self._settle_us

    def is_unsettled(self, row: NodeRow) -> bool:
        """What was promised there before a loss may be missing: nothing may be placed yet."""
        if self.is_suspect:
            return True
        heard = row.heard if row.epoch == self._epoch else 0
        return row.vms > heard and self._pipeline.redis_us() < self._settle_us

    def is_frozen(self, name: NodeName) -> bool:
        """An operator has stopped grants there."""
        return EVERYWHERE in self.freezes or name in self.freezes

    def _since(self, _: str) -> dict[str, str | int | bytes]:
        return {"epoch": self._epoch, "since": self.version}

    def _take(self, answer: list[Any]) -> None:
        word, *rest = answer
        if word == "UNBUILT":
            return
        epoch, version, state, settle_ms, freezes, *pairs = rest
        if word == "FULL":
            self.nodes, self.rooms = {}, {}
            self._changed.clear()
            self.revision += 1
        for name, row in zip(pairs[::2], pairs[1::2], strict=True):
            self._put(NodeName(name.decode()), NodeRow.decode(row.decode()) if row else None)
        self._epoch, self.version = epoch.decode(), version
        self.is_suspect = state != b"settled"
        self._settle_us = settle_ms * 1000
        found = zip(freezes[::2], freezes[1::2], strict=True)
        self.freezes = {each.node: each for each in (Freeze.decode(*pair) for pair in found)}

    def _put(self, name: NodeName, row: NodeRow | None) -> None:
        self.nodes.pop(name, None)
        before = self.rooms.pop(name, None)
        if row:
            self.nodes[name] = row
        if row and not row.absent:
            self.rooms[name] = row.room
        after = self.rooms.get(name)
        if (before or ())[2:] != (after or ())[2:]:
            self._largest = None  # another capacity
        self._changed.append(name)
        self.revision += 1
