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

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from tests.history.effort import (
    ALL,
    FEW,
    LOST_EARLIER,
    ORDERS,
    QUICK,
    QUICK_TRIES,
    WITH_LOST,
    GivenUp,
    SearchSettings,
    Width,
)
from tests.history.moment import Moment, Possible
from tests.history.node_state import NodeState
from tests.history.steps import Step
from tests.history.ways import Ways


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The first answer for which there is no order, and what was possible just before it."""

    step: Step
    before: list[Possible]
    is_proven: bool
    """False: the search was given up."""


_Widen = Callable[[Ways, Moment, Step, int], list[Possible]]

KEPT_MOMENTS = 1024
"""Of a longer search, older ones are forgotten, but for the start."""
EVENTS_BETWEEN = 16
"""From one kept moment to the next; and how far a full search goes on past what it is for."""


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
    search.ways.begin(ALL, most_tries=settings.most_tries // 4)
    with suppress(GivenUp):
        search.advance(search.moments[0].copy(), _fully)
    moments = [each for each in reversed(search.moments) if len(each.possible) == 1]
    return [search.since(each) for each in moments]


class _Search:
    def __init__(self, steps: Sequence[Step], start: NodeState, settings: SearchSettings) -> None:
        self.settings, self.ways = settings, Ways(settings)
        # An answer at the very moment of a call may have come after it.
        self.events = sorted(
            [(step.begins, 0, step.id, step) for step in steps]
            + [(step.ends, 1, step.id, step) for step in steps if step.must_be]
        )
        self.moments = [Moment(0, [Possible(start, frozenset())])]

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

    def look_again(self, failed: Unexplained) -> Moment | Unexplained:
        """A full search past the failure; begun ever earlier, at last at the start."""
        back, is_start = 1, False
        while not is_start:
            is_start = back >= len(self.moments)
            for width in (QUICK, WITH_LOST, ORDERS, LOST_EARLIER):
                found = self.fully(self.moments[0 if is_start else -back], width, failed)
                if isinstance(found, Moment):
                    return found
            back *= 4
        return self.fully(self.moments[0], ALL, failed)

    def fully(self, begin: Moment, width: Width, failed: Unexplained) -> Moment | Unexplained:
        """A full search from there past the failure."""
        moment = begin.copy()
        most = self.settings.most_tries
        self.ways.begin(width, most_tries=most if width is ALL else most // 4)
        try:
            return self.advance(moment, _fully, past=failed.step) or moment
        except GivenUp:
            return Unexplained(failed.step, failed.before, is_proven=False)

    def advance(
        self, moment: Moment, widen: _Widen, past: Step | None = None
    ) -> Unexplained | None:
        """On to the end, or to a little after the answer of `past`."""
        until = len(self.events)
        while moment.event < until:
            time, is_end, _, step = self.events[moment.event]
            if is_end:
                before = moment.possible
                moment.possible = widen(self.ways, moment, step, time)
                if not moment.possible:
                    return Unexplained(step, before, is_proven=True)
                moment.end(step, stamp_lag=self.settings.stamp_lag)
                if step is past:
                    until = min(until, moment.event + EVENTS_BETWEEN)
            else:
                moment.begin(step)
            moment.event += 1
            if moment.event % EVENTS_BETWEEN == 0:
                self.keep(moment)
        return None

    def since(self, moment: Moment) -> tuple[NodeState, list[Step]]:
        """The only state of a moment, and what is left to happen."""
        (one,) = moment.possible
        going_on = moment.changes | moment.reads | moment.unanswered
        begun = [step for at, step in going_on.items() if at not in one.done]
        rest = [step for _, is_end, _, step in self.events[moment.event :] if not is_end]
        return one.state, [*begun, *rest]

    def keep(self, moment: Moment) -> None:
        if moment.event <= self.moments[-1].event:
            return
        self.moments.append(moment.copy())
        if len(self.moments) > KEPT_MOMENTS:
            del self.moments[1 : KEPT_MOMENTS // 2]


def _quickly(ways: Ways, moment: Moment, step: Step, now: int) -> list[Possible]:
    """A few ways, those with the least before the step; none need not mean that there is none."""
    ways.tries = 0
    if len(moment.possible) == 1:
        (one,) = moment.possible
        found = [one] if step.id in one.done else list(ways.after(moment, one, step))
        if len(found) == 1:
            return [_ended(found[0], step)]
    else:
        found = []
        for one in moment.possible:
            found += [one] if step.id in one.done else ways.after(moment, one, step)
    for width in (QUICK, WITH_LOST):
        if found:
            break
        ways.begin(width, most_tries=QUICK_TRIES)
        every = ways.search(moment, moment.possible, step, now, is_last_resort=width is WITH_LOST)
        with suppress(GivenUp):  # what was found until then is as good
            for one in islice(every, FEW):
                found.append(one)
    return _distinct(found, step)[:FEW]


def _fully(ways: Ways, moment: Moment, step: Step, now: int) -> list[Possible]:
    """Every way there is."""
    return _distinct(ways.of(moment, step, now), step)


def _distinct(found: Iterable[Possible], step: Step) -> list[Possible]:
    ended = [_ended(one, step) for one in found]
    return ended if len(ended) < 2 else list({one.key: one for one in ended}.values())


def _ended(one: Possible, step: Step) -> Possible:
    """What was answered need not be remembered as done."""
    return one._replace(done=one.done - {step.id})
