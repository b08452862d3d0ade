"""Which fields the rows have: the schema that this release writes, and the ones it can come from.

A ledger of a newer schema is refused. One of an older schema is migrated by the first replica that
finds it, one schema a step, each in one script; replicas of the older release refuse it from then
on. docs/upgrades.md says what that means for a rolling update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from autoscale_enforcer.model.rows import NodeRow, PodRow

SCHEMA = 1
"""Raised with each change of a row's fields, together with an entry in MIGRATIONS."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of one kind of row, in their order."""

    fields: tuple[str, ...]
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Of fields that the schema before had not."""

    @classmethod
    def of(cls, row: type[Any]) -> Layout:
        """As this release has it."""
        return cls(tuple(each.name for each in fields(row)))

    @property
    def names(self) -> str:
        """For the script."""
        return " ".join(self.fields)

    @property
    def wanted(self) -> str:
        """For the script, with defaults."""
        return " ".join(
            f"{name}={self.defaults[name]}" if name in self.defaults else name
            for name in self.fields
        )


@dataclass(frozen=True, slots=True)
class Schema:
    """Both kinds of row."""

    nodes: Layout
    pods: Layout


CURRENT = Schema(Layout.of(NodeRow), Layout.of(PodRow))

SCHEMAS: dict[int, Schema] = {SCHEMA: CURRENT}
"""This release's, and each older one that it can come from, without a gap."""


def mismatch(found: int, known: int = SCHEMA) -> str:
    """Why a ledger of that schema cannot be used, for people."""
    if found > known:
        return (
            f"the ledger was written by a newer release: its schema is {found}, this release knows "
            f"{known}; run the newer release, or empty the ledger to have it built anew"
        )
    return f"the ledger was written by an older release: its schema is {found}, not {known} yet"
