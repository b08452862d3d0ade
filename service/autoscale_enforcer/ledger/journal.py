"""Entries of the journal, as the scripts write them (`journal_pod.lua`, `journal_node.lua`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from autoscale_enforcer.model.rows import NO_WORD, PodRow

GRANTS = frozenset({"reserve", "begin_bind", "request"})
"""What we decide; everything else is a fact or a release, `restore` (a told permit that was lost
with its Redis, and what it grew by) among the facts."""

NEW_BOOKS = frozenset({"build", "lost"})
"""What came before these is no history of the rows that are there now."""


@dataclass(frozen=True, slots=True)
class HoldState:
    """A pod's hold before or after a change. Amounts in millicores and bytes."""

    stage: str
    cpu: int
    mem: int
    charge_cpu: int
    charge_mem: int
    asked_cpu: int
    asked_mem: int
    ignored: int
    moving: int

    @classmethod
    def decode(cls, text: str) -> Self | None:
        """What the entry says; None where there was no row."""
        stage, *numbers = text.split(" ")
        return cls(stage, *map(int, numbers)) if stage else None

    @classmethod
    def of(cls, row: PodRow) -> Self:
        """The part of a row that the journal tells."""
        return cls(
            row.stage, row.cpu, row.mem, row.charge_cpu, row.charge_mem,
            row.asked_cpu, row.asked_mem, row.ignored, row.moving,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One change of the books."""

    what: str
    """The operation: reserve, begin_bind, unreserve, confirm, abandon, request, restore, put_pod,
    finish, replace, delete_pod, release, put_node, delete_node, recount, build, suspect, settle,
    lost, migrate, freeze, thaw, reconcile, and of what another primary lacks: dropped, unclear."""
    uid: str
    """'-' where it is not about a pod."""
    name: str
    """`namespace/name` of the pod, or the node's name."""
    source: str
    """The node before, '-' for none."""
    node: str
    """The node after, '-' for none."""
    before: HoldState | None
    after: HoldState | None
    room: tuple[int, ...]
    """reserved cpu, reserved mem, capacity cpu, capacity mem of the node after; else empty."""
    detail: tuple[str, str]
    """`before` and `after` as they were written, for entries that are not about a pod."""

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> Self:
        """The entry; KeyError or ValueError where the fields are none of ours."""
        is_of_pod = fields["uid"] != NO_WORD
        before, after = fields["before"], fields["after"]
        return cls(
            what=fields["what"],
            uid=fields["uid"],
            name=fields["name"],
            source=fields["from"],
            node=fields["node"],
            before=HoldState.decode(before) if is_of_pod else None,
            after=HoldState.decode(after) if is_of_pod else None,
            room=tuple(map(int, fields.get("room", "").split())),
            detail=(before, after),
        )

    @property
    def is_of_pod(self) -> bool:
        """It is about a pod's hold."""
        return self.uid != NO_WORD

    def over_granted(self) -> Iterator[str]:
        """Resources in which this grant left its node over capacity: none, ever."""
        if self.what not in GRANTS or not self.room or not self.after:
            return
        had = self.before if self.before and self.source == self.node else None
        reserved, capacity = self.room[:2], self.room[2:]
        for index, resource in enumerate(("cpu", "mem")):
            charge = getattr(self.after, f"charge_{resource}")
            more = charge > (getattr(had, f"charge_{resource}") if had else 0)
            if more and reserved[index] > capacity[index]:
                yield resource
