"""Looks for an order of one node's steps in which a node would have answered just so.

After Wing and Gong, with Lowe's just-in-time rule: a step takes effect no earlier than some answer
needs it to. All states that the answers so far allow are carried along; equal ones, with the same
steps behind them, count once. A read takes effect as soon as it is explained, for it changes
nothing.

Most answers are explained by the order in which they came. So that is tried first, and only where
it fails is everything tried, from a little before, then from ever earlier. That never accepts too
much, and rejects only after a full search from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

from tests.history.node_state import NodeState
from tests.history.record import CLUSTER, Op, Operation, Outcome
from tests.history.steps import PLACING, Part, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """What the service was run with, and how long to look."""

    hold_lifetime: int = 30_000_000_000
    """Nanoseconds of `--hold-lifetime`: a hold may be gone so long after it was asked for."""
    unanswered_for: int = 60_000_000_000
    """Nanoseconds after which a call without an answer is not on its way any more: longer than
    anything may be paused or held up, and then answered late.
    """
    stamp_lag: int = 500_000_000
    """Nanoseconds by which a replica may reckon Redis' clock too early: its socket timeout."""
    most_tries: int = 200_000
    """Steps tried in one full search before it is given up as undecided."""


class Unanswered(IntEnum):
    """When a call that nobody got an answer to is taken to have had an effect."""

    NEVER = 0
    WHERE_NEEDED = 1
    """Where an answer is explained in no other way, and then just before it: as early as that is
    as good as earlier, but where a fact has taken the room meanwhile.
    """
    ANYWHERE = 2


class Width(NamedTuple):
    """How much is tried."""

    unanswered: Unanswered
    every_order: bool
    """False: where two orders of two steps end alike, one of them is enough. That is quick, but
    two steps may need a third between them.
    """


QUICK = Width(Unanswered.NEVER, every_order=False)
WITH_LOST = Width(Unanswered.WHERE_NEEDED, every_order=False)
ORDERS = Width(Unanswered.NEVER, every_order=True)
LOST_EARLIER = Width(Unanswered.ANYWHERE, every_order=False)
ALL = Width(Unanswered.ANYWHERE, every_order=True)


class Possible(NamedTuple):
    """One way in which it may have come so far."""

    state: NodeState
    done: frozenset[int]
    """Steps still going on that have taken effect already."""

    @property
    def key(self) -> object:
        return self.state.key, self.done


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The first answer for which there is no order, and what was possible just before it."""

    step: Step
    before: list[Possible]
    is_proven: bool
    """False: the search was given up."""


class _GivenUp(Exception):
    """More was tried than the settings allow."""


@dataclass(slots=True)
class _Moment:
    """Where the search is: all events before `event` have been taken in."""

    event: int
    possible: list[Possible]
    changes: dict[int, Step] = field(default_factory=dict)
    """Going on, and not only looking."""
    reads: dict[int, Step] = field(default_factory=dict)
    unanswered: dict[int, Step] = field(default_factory=dict)

    def copy(self) -> _Moment:
        return _Moment(
            self.event,
            list(self.possible),
            dict(self.changes),
            dict(self.reads),
            dict(self.unanswered),
        )


_Widen = Callable[["_Search", _Moment, Step, int], list[Possible]]

KEPT_MOMENTS = 1024
"""Of a longer search, older ones are forgotten, but for the start."""
EVENTS_BETWEEN = 16
"""From one kept moment to the next; and how far a full search goes on past what it is for."""
QUICK_TRIES = 5_000
"""Steps tried for one answer before a full search is made."""
FEW = 8
"""Ways carried along while the order of the answers explains them."""


def explain(
    steps: Sequence[Step],
    *,
    start: NodeState | None = None,
    settings: SearchSettings | None = None,
) -> Unexplained | None:
    """None where some order explains every answer; `start` is the node before all of it."""
    return _Search(steps, start or NodeState(), settings or SearchSettings()).run()


def only_states(
    steps: Sequence[Step], *, settings: SearchSettings
) -> list[tuple[NodeState, list[Step]]]:
    """Moments at which just one state is possible, the latest first: that state, and all steps
    that may take effect after it. Nothing where a full search is too much.
    """
    search = _Search(steps, NodeState(), settings)
    search.most_tries //= 4
    with suppress(_GivenUp):
        search.advance(search.moments[0].copy(), _fully)
    moments = [each for each in reversed(search.moments) if len(each.possible) == 1]
    return [search.since(each) for each in moments]


class _Search:
    def __init__(self, steps: Sequence[Step], start: NodeState, settings: SearchSettings) -> None:
        self.settings = settings
        self.tries, self.most_tries = 0, settings.most_tries
        self.width = ALL
        # An answer at the very moment of a call may have come after it.
        self.events = sorted(
            [(step.begins, 0, step.id, step) for step in steps]
            + [(step.ends, 1, step.id, step) for step in steps if step.must_be]
        )
        self.moments = [_Moment(0, [Possible(start, frozenset())])]

    def run(self) -> Unexplained | None:
        moment = self.moments[0].copy()
        while moment.event < len(self.events):
            failed = self.advance(moment, _quickly)
            if failed is None:
                return None
            found = self.look_again(failed)
            if isinstance(found, Unexplained):
                return found
            moment = found
        return None

    def look_again(self, failed: Unexplained) -> _Moment | Unexplained:
        """A full search past the failure; begun ever earlier, at last at the start."""
        back, is_start = 1, False
        while not is_start:
            is_start = back >= len(self.moments)
            for width in (QUICK, WITH_LOST, ORDERS, LOST_EARLIER):
                found = self.fully(self.moments[0 if is_start else -back], width, failed)
                if isinstance(found, _Moment):
                    return found
            back *= 4
        return self.fully(self.moments[0], ALL, failed)

    def fully(self, begin: _Moment, width: Width, failed: Unexplained) -> _Moment | Unexplained:
        """A full search from there past the failure."""
        moment = begin.copy()
        self.width, self.tries, self.most_tries = width, 0, self.settings.most_tries
        if width is not ALL:
            self.most_tries //= 4
        try:
            return self.advance(moment, _fully, past=failed.step) or moment
        except _GivenUp:
            return Unexplained(failed.step, failed.before, is_proven=False)

    def advance(
        self, moment: _Moment, widen: _Widen, past: Step | None = None
    ) -> Unexplained | None:
        """On to the end, or to a little after the answer of `past`."""
        until = len(self.events)
        while moment.event < until:
            time, is_end, _, step = self.events[moment.event]
            if is_end:
                before = moment.possible
                moment.possible = widen(self, moment, step, time)
                if not moment.possible:
                    return Unexplained(step, before, is_proven=True)
                moment.changes.pop(step.id, None)
                moment.reads.pop(step.id, None)
                if step is past:
                    until = min(until, moment.event + EVENTS_BETWEEN)
                self.forget(moment, step.operation)
            else:
                self.begin(moment, step)
            moment.event += 1
            if moment.event % EVENTS_BETWEEN == 0:
                self.keep(moment)
        return None

    def since(self, moment: _Moment) -> tuple[NodeState, list[Step]]:
        """The only state of a moment, and what is left to happen."""
        (one,) = moment.possible
        going_on = moment.changes | moment.reads | moment.unanswered
        begun = [step for at, step in going_on.items() if at not in one.done]
        rest = [step for _, is_end, _, step in self.events[moment.event :] if not is_end]
        return one.state, [*begun, *rest]

    def begin(self, moment: _Moment, step: Step) -> None:
        if not step.must_be:
            if not step.is_read:
                moment.unanswered[step.id] = step
        elif step.is_read:
            moment.reads[step.id] = step
            moment.possible = [
                one._replace(done=one.done | {step.id}) if step.is_so(one.state) else one
                for one in moment.possible
            ]
        else:
            moment.changes[step.id] = step

    def forget(self, moment: _Moment, done: Operation) -> None:
        """Calls without an answer that can have no effect after this one has ended."""
        late = {
            at
            for at, step in moment.unanswered.items()
            if step.operation.pod == done.pod and self.is_outdated(step.operation, done)
        }
        for at in late:
            del moment.unanswered[at]

    def is_outdated(self, lost: Operation, done: Operation) -> bool:
        """Nothing is booked for a pod that is gone, and nothing older than what has changed it: a
        call that a replica gave up had its stamp by then.
        """
        if done.op is Op.GONE:
            return True
        changes = done.op in (Op.REQUEST, *PLACING) and done.outcome is Outcome.DONE
        if not changes or lost.given_up is None or not lost.replica:
            return False
        return lost.given_up + self.settings.stamp_lag < done.invoked

    def keep(self, moment: _Moment) -> None:
        if moment.event <= self.moments[-1].event:
            return
        self.moments.append(moment.copy())
        if len(self.moments) > KEPT_MOMENTS:
            del self.moments[1 : KEPT_MOMENTS // 2]

    def after(self, moment: _Moment, one: Possible, step: Step) -> Iterator[Possible]:
        """Each way to go on with this step, and with the reads that are explained by it.

        A call without an answer is not remembered as done: it may have been sent twice.
        """
        self.tries += 1
        if self.tries > self.most_tries:
            raise _GivenUp
        for state in step.after(one.state, hold_lifetime=self.settings.hold_lifetime):
            done = one.done | {step.id} if step.must_be else one.done
            yield Possible(state, self.with_reads(moment, state, done))

    def with_reads(self, moment: _Moment, state: NodeState, done: frozenset[int]) -> frozenset[int]:
        if not moment.reads:
            return done
        explained = [
            step.id for step in moment.reads.values() if step.id not in done and step.is_so(state)
        ]
        return done.union(explained) if explained else done

    def others(
        self, moment: _Moment, one: Possible, step: Step, now: int, *, is_last_resort: bool
    ) -> Iterator[Possible]:
        """Each way in which something else comes first: another step, or the end of a hold."""
        changes = list(moment.changes.values())
        if one.state.is_unsettled:  # a look that shows the node as settled changes what may follow
            changes += [each for each in moment.reads.values() if each.operation.op is Op.READ]
        for other in changes:
            if other is not step and other.id not in one.done:
                yield from self.after(moment, one, other)
        if is_last_resort:
            yield from self.unheard(moment, one, step, now)

    def unheard(self, moment: _Moment, one: Possible, step: Step, now: int) -> Iterator[Possible]:
        """Each way in which something comes first that nobody was told of."""
        anywhere = self.width.unanswered is Unanswered.ANYWHERE
        for other in moment.unanswered.values():
            if not self.is_lost(other, now) and (anywhere or _may_help(step, other)):
                for way in self.after(moment, one, other):
                    if way.state.key != one.state.key:  # else it may as well never come
                        yield way
        for state in one.state.lapsed(now=now):
            yield Possible(state, self.with_reads(moment, state, one.done))

    def is_lost(self, step: Step, now: int) -> bool:
        """Whether the call can have no effect any more; facts always can."""
        is_call = step.operation.client != CLUSTER
        return is_call and step.operation.invoked + self.settings.unanswered_for < now

    def ways(self, moment: _Moment, step: Step, now: int) -> Iterator[Possible]:
        """All ways in which the step has been done."""
        if self.width.unanswered is not Unanswered.WHERE_NEEDED:
            is_last = self.width.unanswered is Unanswered.ANYWHERE
            yield from self.search(moment, moment.possible, step, now, is_last_resort=is_last)
            return
        for one in moment.possible:
            found = list(self.search(moment, [one], step, now, is_last_resort=False))
            yield from found or self.search(moment, [one], step, now, is_last_resort=True)

    def search(
        self,
        moment: _Moment,
        begin: Iterable[Possible],
        step: Step,
        now: int,
        *,
        is_last_resort: bool,
    ) -> Iterator[Possible]:
        """Ways to go on from these, each once, those with the least before the step first."""
        waiting = list(begin)
        seen = {one.key for one in waiting}
        for one in waiting:  # grows meanwhile
            if step.id in one.done:
                yield one
                continue
            direct = list(self.after(moment, one, step))
            yield from direct
            for other in self.others(moment, one, step, now, is_last_resort=is_last_resort):
                if (
                    not self.width.every_order
                    and direct
                    and self.may_wait(moment, one, step, direct, other)
                ):
                    continue
                if other.key not in seen:
                    seen.add(other.key)
                    waiting.append(other)

    def may_wait(
        self,
        moment: _Moment,
        one: Possible,
        step: Step,
        direct: list[Possible],
        first: Possible,
    ) -> bool:
        """Whether what led from `one` to `first` may as well come after the step.

        So it may where both orders end alike and no read needs what is between.
        """
        did = first.done - one.done
        if len(did) != 1:
            return False
        (at,) = did
        other = moment.changes.get(at)
        if other is None:
            return False  # a read, explained by a call without an answer
        step_last = {each.key for each in self.after(moment, first, step)}
        other_last = {each.key for way in direct for each in self.after(moment, way, other)}
        return step_last == other_last


def _may_help(step: Step, other: Step) -> bool:
    """Whether `other` before it may explain a step: less room never explains a grant."""
    if step.is_read or step.operation.op not in PLACING:
        return True
    takes_room = other.operation.op in PLACING and other.part is Part.OWN
    return not takes_room or other.operation.pod == step.operation.pod


def _quickly(search: _Search, moment: _Moment, step: Step, now: int) -> list[Possible]:
    """A few ways, those with the least before the step; none need not mean that there is none."""
    search.tries = 0
    if len(moment.possible) == 1:
        (one,) = moment.possible
        found = [one] if step.id in one.done else list(search.after(moment, one, step))
        if len(found) == 1:
            return [_ended(found[0], step)]
    else:
        found = []
        for one in moment.possible:
            found += [one] if step.id in one.done else search.after(moment, one, step)
    for search.width in (QUICK, WITH_LOST):
        if found:
            break
        search.tries, search.most_tries = 0, QUICK_TRIES
        with suppress(_GivenUp):
            found = list(islice(search.ways(moment, step, now), FEW))
    return _distinct(found, step)[:FEW]


def _fully(search: _Search, moment: _Moment, step: Step, now: int) -> list[Possible]:
    """Every way there is."""
    return _distinct(search.ways(moment, step, now), step)


def _distinct(found: Iterable[Possible], step: Step) -> list[Possible]:
    ended = [_ended(one, step) for one in found]
    return ended if len(ended) < 2 else list({one.key: one for one in ended}.values())


def _ended(one: Possible, step: Step) -> Possible:
    """What was answered need not be remembered as done."""
    return one._replace(done=one.done - {step.id})
