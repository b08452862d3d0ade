"""Where a search is: what has happened so far, in every way that may be, and what is going on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.history.node_state import NodeState
from tests.history.record import Op, Operation, Outcome
from tests.history.steps import PLACING, Step


class Possible(NamedTuple):
    """One way in which it may have come so far."""

    state: NodeState
    done: frozenset[int]
    """Steps still going on that have taken effect already."""

    @property
    def key(self) -> object:
        return self.state.key, self.done


@dataclass(slots=True)
class Moment:
    """All events before `event` have been taken in."""

    event: int
    possible: list[Possible]
    changes: dict[int, Step] = field(default_factory=dict)
    """Going on, and not only looking."""
    reads: dict[int, Step] = field(default_factory=dict)
    unanswered: dict[int, Step] = field(default_factory=dict)

    def copy(self) -> Moment:
        return Moment(
            self.event,
            list(self.possible),
            dict(self.changes),
            dict(self.reads),
            dict(self.unanswered),
        )

    def begin(self, step: Step) -> None:
        """It may take effect from now on."""
        if not step.must_be:
            if not step.is_read:
                self.unanswered[step.id] = step
        elif step.is_read:
            self.reads[step.id] = step
            self.possible = [
                one._replace(done=one.done | {step.id}) if step.is_so(one.state) else one
                for one in self.possible
            ]
        else:
            self.changes[step.id] = step

    def end(self, step: Step, *, stamp_lag: int) -> None:
        """It has been answered, so some calls without an answer can have no effect any more."""
        self.changes.pop(step.id, None)
        self.reads.pop(step.id, None)
        outdated = [
            at
            for at, lost in self.unanswered.items()
            if _is_outdated(lost.operation, step.operation, stamp_lag)
        ]
        for at in outdated:
            del self.unanswered[at]

    def with_reads(self, state: NodeState, done: frozenset[int]) -> frozenset[int]:
        """Done, and the reads that the state explains."""
        if not self.reads:
            return done
        explained = [
            step.id for step in self.reads.values() if step.id not in done and step.is_so(state)
        ]
        return done.union(explained) if explained else done


def _is_outdated(lost: Operation, done: Operation, stamp_lag: int) -> bool:
    """Nothing is booked for a pod that is gone, nothing older than what has changed it, and nothing
    of earlier books: a call that a replica gave up had its stamp by then, and its epoch.
    """
    if done.op is Op.GONE:
        return lost.pod == done.pod
    if lost.given_up is None or not lost.replica:
        return False
    if done.op is Op.EPOCH:
        # A Binding that was sent is in the cluster, and so in the books that are built from it.
        ends = done.is_wiped and lost.op is not Op.BIND
    else:
        changes = done.op in (Op.REQUEST, *PLACING) and done.outcome is Outcome.DONE
        ends = changes and lost.pod == done.pod
    return ends and lost.given_up + stamp_lag < done.invoked
