"""The smallest history that is still wrong, and its print.

Only what surely explains nothing is left out: what came after the wrong answer, what came before a
moment at which just one state was possible, reads and refusals. A grant that does not fit even
then does not fit beside fewer pods either where refusals, sums and partial permits are not judged;
so in that case whole pods are left out too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tests.history.effort import SearchSettings
from tests.history.node_state import FOREVER, Hold, NodeState
from tests.history.record import NodeSeen, Op, Operation, Outcome, Pair
from tests.history.search import Unexplained, explain, only_states
from tests.history.steps import Part, Step

T = TypeVar("T")

MOST_STEPS = 20_000
"""Longer histories are not shrunk step by step, for each try is a search."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A history of one node that no order explains."""

    node: str
    start: NodeState
    """What was surely there before."""
    steps: list[Step]
    wrong: Step
    before: list[NodeState]
    """What was possible just before the wrong answer; in none of it is the answer right."""
    is_proven: bool

    @property
    def text(self) -> str:
        """For people."""
        return "\n".join(_lines(self))


def smallest(
    steps: Sequence[Step], wrong: Unexplained, *, settings: SearchSettings
) -> Counterexample:
    """As little as is still wrong; what was given up is shown as it was found."""
    start, kept = NodeState(), _until(steps, wrong.step)
    if len(kept) <= MOST_STEPS:
        start, kept = _shrunk(kept, wrong, settings)
        wrong = explain(kept, start=start, settings=settings) or wrong
        kept = _until(kept, wrong.step)
    before = [one.state for one in wrong.before]
    return Counterexample(wrong.step.node, start, kept, wrong.step, before, wrong.is_proven)


def _shrunk(
    steps: list[Step], wrong: Unexplained, settings: SearchSettings
) -> tuple[NodeState, list[Step]]:
    def is_wrong(start: NodeState, some: Sequence[Step]) -> bool:
        found = explain(some, start=start, settings=settings)
        return found is not None and found.is_proven

    start = NodeState()
    for state, rest in only_states(steps, settings=settings) if wrong.is_proven else ():
        if is_wrong(state, rest):
            start, steps = state, rest
            break
    reads = [step for step in steps if step.is_read]
    others = [step for step in steps if not step.is_read]
    lenient = start._replace(is_unsettled=True)
    for pods in _suspects(start, others, wrong):
        if is_wrong(*_only(lenient, others, pods)):
            least = fewest(pods, lambda some: is_wrong(*_only(lenient, others, some)))
            return _only(lenient, others, least)
    needed = reads
    if wrong.is_proven:
        needed = fewest(reads, lambda some: is_wrong(start, _merged(others, some)))
    return start, _merged(others, needed)


def _suspects(start: NodeState, steps: list[Step], wrong: Unexplained) -> Iterator[list[str]]:
    """Pods among which a grant too many may be: first those that held something just then, for
    with all pods a search may be too much.
    """
    held = {pod for one in wrong.before for pod in one.state.holds}
    yield sorted(held | {wrong.step.operation.pod})
    yield sorted({step.operation.pod for step in steps if step.operation.pod} | {*start.holds})


def fewest(items: list[T], is_wrong: Callable[[list[T]], bool]) -> list[T]:
    """Some of the items, still wrong, of which no single one can be left out; after Zeller.

    `is_wrong` holds for all of them.
    """
    size = max(1, len(items) // 2)
    while items:
        at, had = 0, len(items)
        while at < len(items):
            rest = items[:at] + items[at + size :]
            if is_wrong(rest):
                items = rest
            else:
                at += size
        if size == 1 and len(items) == had:
            break
        size = max(1, size // 2)
    return items


def _until(steps: Sequence[Step], wrong: Step) -> list[Step]:
    """What may have come before the wrong answer; what was answered later need not have."""
    kept = []
    for step in steps:
        if step is wrong or step.ends <= wrong.ends:
            kept.append(step)
        elif step.begins <= wrong.ends and not step.is_read:
            kept.append(replace(step, ends=FOREVER))
    return kept


def _only(
    start: NodeState, steps: Sequence[Step], pods: Sequence[str]
) -> tuple[NodeState, list[Step]]:
    """The same without other pods."""
    for pod in start.holds:
        if pod not in pods:
            start = start.having(pod, None)
    kept = [s for s in steps if not s.operation.pod or s.operation.pod in pods]
    return start, kept


def _merged(some: Sequence[Step], more: Sequence[Step]) -> list[Step]:
    return sorted([*some, *more], key=lambda step: step.begins)


# The print


def _lines(found: Counterexample) -> list[str]:
    title = f"Node {found.node}: no order of events explains the last answer."
    if not found.is_proven:
        title = f"Node {found.node}: no order was found, and the search was given up."
    zero = min((step.begins for step in found.steps), default=0)
    lines = [title, f"  at first: {_state(found.start)}", "  ms from .. to, client, what, answer:"]
    last = [step for step in found.steps if step is not found.wrong]
    lines += [f"    {_step(step, zero)}" for step in [*last, found.wrong]]
    lines.append("  before that answer the node can only have been:")
    lines += [f"    {_state(state)}" for state in found.before[:3]]
    if len(found.before) > 3:
        lines.append(f"    or one of {len(found.before) - 3} more")
    return lines


def _state(state: NodeState) -> str:
    held = ", ".join(f"{pod} {_hold(hold)}" for pod, hold in sorted(state.holds.items()))
    unsettled = ", refusals and sums are not judged" if state.is_unsettled else ""
    reserved, capacity = _amount(state.reserved), _amount(state.capacity)
    return f"{reserved} of {capacity} reserved{unsettled}; {held or 'nothing held'}"


def _hold(hold: Hold) -> str:
    kind = "permit" if hold.most else "bound" if hold.is_fixed else "held"
    return f"{kind} {_amount((hold.cpu, hold.mem))}"


def _step(step: Step, zero: int) -> str:
    one = step.operation
    ends = f"{(step.ends - zero) / 1e6:.3f}" if step.must_be else "never"
    who = f"client {one.client}" if one.client >= 0 else "cluster"
    return f"{(step.begins - zero) / 1e6:.3f} .. {ends}  {who}  {_asked(step)}  ->  {_told(step)}"


def _asked(step: Step) -> str:
    one = step.operation
    where = f" on {one.node}" if step.part is Part.LEAVE else ""
    amount = f" {_amount(one.asked)}" if any(one.asked) else ""
    return f"{one.op} {one.pod}{where}{amount}".replace("  ", " ").rstrip()


def _told(step: Step) -> str:
    one: Operation = step.operation
    by = f" by {one.replica}" if one.replica else ""
    if one.outcome is Outcome.REFUSED:
        return f"refused{by}: {one.reason}"
    if one.outcome is Outcome.UNKNOWN:
        return f"no answer{by} {one.reason}".rstrip()
    if one.op is Op.REQUEST:
        return f"permit {_amount(one.told)}{by}"
    if one.seen is None:
        return f"done{by}"
    seen = one.seen[step.node]
    if isinstance(seen, NodeSeen):
        return f"{_amount(seen.reserved)} of {_amount(seen.capacity)} for {seen.pods} pods{by}"
    return f"{seen or 'passes'}{by}"


def _amount(amount: Pair) -> str:
    cpu, mem = amount
    return f"{cpu}m/{mem >> 20}Mi" if mem % (1 << 20) == 0 else f"{cpu}m/{mem}"
