"""A history taken apart into what happened to each node, in the order of the calls.

An operation is a step of its own node. A reserve or bind that may have moved the pod there is a
step of the node that the pod left, too: one script does both, so each may be judged by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from tests.history.node_state import FOREVER, NodeState
from tests.history.record import NodeSeen, Op, Operation, Outcome


class Part(StrEnum):
    """What of an operation concerns the node."""

    OWN = "own"
    LEAVE = "leave"
    """The pod is held elsewhere from then on."""


PLACING = (Op.RESERVE, Op.BIND)
LOOKING = (Op.FILTER, Op.READ)


@dataclass(slots=True, eq=False)
class Step:
    """One operation, as one node has it."""

    id: int
    """Unique on its node."""
    operation: Operation
    node: str
    part: Part
    begins: int
    ends: int
    """FOREVER: it may take effect at any later time, or never."""

    @property
    def is_read(self) -> bool:
        """It changes nothing, whatever it was answered."""
        return self.operation.op in LOOKING or self.operation.outcome is Outcome.REFUSED

    @property
    def must_be(self) -> bool:
        """Somebody knows that it took effect."""
        return self.ends != FOREVER

    def is_so(self, state: NodeState) -> bool:
        """Whether a read may be answered so in this state, which stays as it is."""
        one = self.operation
        if one.outcome is Outcome.REFUSED:
            return one.op not in PLACING or state.explains_refusal(one.pod, one.asked, one.reason)
        seen = (one.seen or {})[self.node]
        if isinstance(seen, NodeSeen):
            return state.explains_sums(seen)
        return state.explains_filter(one.pod, one.asked, seen)

    def after(self, state: NodeState, *, hold_lifetime: int) -> Iterable[NodeState]:
        """Every state that may follow; none where the answer cannot be explained here."""
        if self.part is Part.LEAVE:
            return state.leave(self.operation.pod)
        if self.is_read and self.operation.op is not Op.READ:
            return (state,) if self.is_so(state) else ()
        return _CHANGES[self.operation.op](self, state, hold_lifetime)


_Change = Callable[[Step, NodeState, int], Iterable[NodeState]]


def _place(step: Step, state: NodeState, hold_lifetime: int) -> Iterable[NodeState]:
    one, lapses = step.operation, step.begins + hold_lifetime
    if one.op is Op.BIND:
        # One that was answered stands; one that was not may be given up at any time.
        lapses = FOREVER if one.outcome is Outcome.DONE else step.begins
    is_bind = one.op is Op.BIND
    return state.reserve(one.pod, one.asked, changed=step.ends, lapses=lapses, is_bind=is_bind)


def _request(step: Step, state: NodeState, _: int) -> Iterable[NodeState]:
    one = step.operation
    told = one.told if one.outcome is Outcome.DONE else None
    return state.request(one.pod, one.asked, factor=one.factor, last=one.last, told=told)


def _shown(step: Step, state: NodeState, _: int) -> Iterable[NodeState]:
    seen = (step.operation.seen or {})[step.node]
    return state.shown(seen) if isinstance(seen, NodeSeen) else ()


def _suspect(step: Step, state: NodeState, _: int) -> Iterable[NodeState]:
    if step.operation.is_wiped:
        return state.wiped()
    lost_since = step.operation.lost_since
    since = FOREVER + 1 if lost_since is None else lost_since
    return state.suspect(lost_since=since, now=step.begins)


_CHANGES: dict[Op, _Change] = {
    Op.RESERVE: _place,
    Op.BIND: _place,
    Op.UNRESERVE: lambda step, state, _: state.unreserve(
        step.operation.pod, invoked=step.operation.invoked
    ),
    Op.REQUEST: _request,
    Op.READ: _shown,
    Op.BOUND: lambda step, state, _: state.bound(
        step.operation.pod, step.operation.asked, step.operation.most
    ),
    Op.GONE: lambda step, state, _: state.gone(step.operation.pod),
    Op.NODE: lambda step, state, _: state.sized(step.operation.asked),
    Op.EPOCH: _suspect,
}


@dataclass(slots=True)
class _Places:
    """Where pods may be, by the calls that may still have a say."""

    calls: defaultdict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    crossed: set[tuple[str, int, int]] = field(default_factory=set)
    """Calls that may take a pod from a node which a later call gave it."""
    gone: dict[str, Operation] = field(default_factory=dict)

    def before(self, one: Operation) -> list[Operation]:
        """Calls that may have placed the pod before this one, or may after it."""
        found = self.calls[one.pod]
        ended = [each for each in found if _is_over(each, one.invoked)]
        latest = max((each.invoked for each in ended), default=0)
        # One that had ended before a later one began, which has ended too, has no say any more.
        found[:] = [each for each in found if each not in ended or _end(each) >= latest]
        return found


def steps_by_node(history: Iterable[Operation]) -> dict[str, list[Step]]:
    """The steps of each node, in the order of their calls; `history` is in that order."""
    parting = _Parting()
    for one in history:
        if one.op is Op.EPOCH:
            parting.epochs.append(one)
        elif one.op in LOOKING:
            parting.add(one, *(one.seen or ()))
        elif one.op is Op.GONE:
            parting.add_gone(one)
        else:
            parting.add(one, one.node)
            if one.op in PLACING and one.outcome is not Outcome.REFUSED:
                parting.add_leaving(one)
            elif one.op is Op.BOUND:
                parting.places.calls[one.pod].append(one)
    return parting.ended()


@dataclass(slots=True)
class _Parting:
    """A history being taken apart."""

    steps: defaultdict[str, list[Step]] = field(default_factory=lambda: defaultdict(list))
    places: _Places = field(default_factory=_Places)
    epochs: list[Operation] = field(default_factory=list)

    def add(self, one: Operation, *nodes: str, part: Part = Part.OWN) -> None:
        for node in nodes:
            mine = self.steps[node]
            mine.append(Step(len(mine), one, node, part, one.invoked, _end(one)))

    def add_leaving(self, one: Operation) -> None:
        """It may take the pod from where others placed it; those that come later may, from it."""
        places, left = self.places, set()
        for other in places.before(one):
            if other.node == one.node:
                continue
            left.add(other.node)
            key = (one.node, other.client, other.id)
            if not _is_over(other, one.invoked) and key not in places.crossed:
                places.crossed.add(key)
                self.add(other, one.node, part=Part.LEAVE)
        self.add(one, *left, part=Part.LEAVE)
        gone = places.gone.get(one.pod)
        if gone and one.node not in {each.node for each in places.calls[one.pod]}:
            self.add(gone, one.node)
        places.calls[one.pod].append(one)

    def add_gone(self, one: Operation) -> None:
        """It leaves every node where it may be, those of later calls too."""
        self.places.gone[one.pod] = one
        self.add(one, *{each.node for each in self.places.calls[one.pod]})

    def ended(self) -> dict[str, list[Step]]:
        # A node that was only looked at belongs to somebody else.
        for node in [n for n, mine in self.steps.items() if not any(map(_changes, mine))]:
            del self.steps[node]
        for node, steps in self.steps.items():
            for epoch in self.epochs:
                self.add(epoch, node)
            steps.sort(key=lambda step: step.begins)
            for number, step in enumerate(steps):
                step.id = number
        return dict(self.steps)


def _changes(step: Step) -> bool:
    return step.operation.op not in LOOKING


def _end(one: Operation) -> int:
    return FOREVER if one.answered is None else one.answered


def _is_over(one: Operation, at: int) -> bool:
    return _end(one) < at
