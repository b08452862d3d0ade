"""Versions of node rows, and a reader who follows the changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autoscale_enforcer.ledger.verify import Books as Found
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.rows import NodeRow
from tests.property.story import Step

Rows = Mapping[NodeName, NodeRow]


def unversioned(found: Found, epoch: str) -> dict[NodeName, NodeRow]:
    """The nodes' rows without what may differ: who was heard in an older epoch, and the version."""
    return {
        name: replace(row, version=0, epoch=epoch, heard=row.heard if row.epoch == epoch else 0)
        for name, row in found.nodes.items()
    }


def wrong_versions(before: Found, after: Found, forgotten: set[NodeName]) -> Iterator[str]:
    """A version rises with each row that changes, and with nothing else.

    `before` are the same books a step earlier; `forgotten` what a trim had to forget.
    """
    known, newest = int(before.meta.get("version", 0)), int(after.meta["version"])
    was, is_ = unversioned(before, after.meta["epoch"]), unversioned(after, after.meta["epoch"])
    for name in before.changes.keys() | after.changes.keys() | was.keys() | is_.keys():
        version, kept = after.changes.get(name, 0), before.changes.get(name, 0)
        if name in forgotten:
            kept = 0
        if was.get(name) == is_.get(name) and version != kept:
            yield f"version of {name} is {version}, not {kept}, and nothing has changed"
        if was.get(name) != is_.get(name) and version <= known:
            yield f"version of {name} is {version}, which readers had before it changed"
    if newest != max([known, *after.changes.values()]):
        yield f"the newest version is {newest}, in the list {after.changes}"
    oldest = max([int(before.meta.get("oldest", 0)), *(before.changes[name] for name in forgotten)])
    if int(after.meta["oldest"]) != oldest:
        yield f"the oldest version is {after.meta['oldest']}, not {oldest}"


def to_be_forgotten(step: Step, before: Found) -> set[NodeName]:
    """The removed nodes that a trim must forget."""
    up_to, limit = int(step.given["before"]), int(step.given["limit"])
    known = sorted((version, name) for name, version in before.changes.items() if version <= up_to)
    return {name for _, name in known[:limit] if name not in before.nodes}


@dataclass(slots=True)
class Reader:
    """Has the nodes as they were at some version, and takes in what has changed since."""

    epoch: str = ""
    version: int = 0
    rows: dict[NodeName, NodeRow] = field(default_factory=dict)

    def asks(self) -> dict[str, str | int | bytes]:
        """The arguments of its next `read_changes`."""
        return {"epoch": self.epoch, "since": self.version}

    def take(self, answer: list[Any], live: Found, freezes: Mapping[str, str]) -> Iterator[str]:
        """What is wrong with the answer of books that are now as in `live`."""
        word, epoch, version, state, settle_ms, frozen, *flat = answer
        meta = live.meta
        if [epoch.decode(), str(version), state.decode(), str(settle_ms)] != [
            *(meta["epoch"], meta["version"], meta["state"], meta["settle_ms"])
        ]:
            yield f"answered {answer[:5]}, not {meta}"
        if [item.decode() for item in frozen] != [
            each for pair in freezes.items() for each in pair
        ]:
            yield f"answered {frozen}, frozen is {freezes}"
        is_delta = self.epoch == meta["epoch"] and self.version >= int(meta["oldest"])
        if word != (b"DELTA" if is_delta else b"FULL"):
            yield f"answered {word!r} to {self.asks()}"
        if not is_delta:
            self.rows.clear()
        for name, text in zip(flat[::2], flat[1::2], strict=True):
            self.rows.pop(NodeName(name.decode()), None)
            if text:
                self.rows[NodeName(name.decode())] = NodeRow.decode(text.decode())
        if self.rows != live.nodes:
            yield f"the reader has {self.rows}, there are {live.nodes}"
        self.epoch, self.version = meta["epoch"], int(meta["version"])
