"""Each way in which a step may have come about: what took effect before it, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.history.effort import ALL, GivenUp, SearchSettings, Unanswered, Width
from tests.history.moment import Moment, Possible
from tests.history.record import CLUSTER, Op
from tests.history.steps import PLACING, Part, Step

UNBUILT = "the ledger is not built"
"""A call that is answered so has no effect from then on: if it had one, it went with the books, and
no Binding was sent.
"""


class Ways:
    """Finds them, and counts how many steps it has tried."""

    def __init__(self, settings: SearchSettings) -> None:
        self.settings, self.width = settings, ALL
        self.tries, self.most_tries = 0, settings.most_tries

    def begin(self, width: Width, *, most_tries: int) -> None:
        """From now on try so much; GivenUp is raised where it is not enough."""
        self.width, self.tries, self.most_tries = width, 0, most_tries

    def after(self, moment: Moment, one: Possible, step: Step) -> Iterator[Possible]:
        """Each way to go on with this step, and with the reads that are explained by it.

        A call without an answer is not remembered as done: it may have been sent twice.
        """
        self.tries += 1
        if self.tries > self.most_tries:
            raise GivenUp
        for state in step.after(one.state, hold_lifetime=self.settings.hold_lifetime):
            done = one.done | {step.id} if step.must_be else one.done
            yield Possible(state, moment.with_reads(state, done))

    def others(
        self, moment: Moment, one: Possible, step: Step, now: int, *, is_last_resort: bool
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

    def unheard(self, moment: Moment, one: Possible, step: Step, now: int) -> Iterator[Possible]:
        """Each way in which something comes first that nobody was told of."""
        anywhere = self.width.unanswered is Unanswered.ANYWHERE
        for other in reversed(moment.unanswered.values()):  # most have their effect soon
            if not self.is_lost(other, now) and (anywhere or _may_help(step, other)):
                for way in self.after(moment, one, other):
                    if way.state.key != one.state.key:  # else it may as well never come
                        yield way
        for state in one.state.lapsed(now=now):
            yield Possible(state, moment.with_reads(state, one.done))

    def is_lost(self, step: Step, now: int) -> bool:
        """Whether the call can have no effect any more; facts always can."""
        one = step.operation
        if one.client == CLUSTER:
            return False
        if one.given_up is not None and one.given_up < now and UNBUILT in one.reason:
            return True
        return one.invoked + self.settings.unanswered_for < now

    def of(self, moment: Moment, step: Step, now: int) -> Iterator[Possible]:
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
        moment: Moment,
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
        moment: Moment,
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
