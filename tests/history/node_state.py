"""One node of the books, as far as clients can tell: what its pods hold, and what may change it.

The rules are those of `tests.reference.books`, cut down to one node so that a million steps are
cheap; `test_against_books` holds the two together. Amounts are charges: no overcommit.
Pure: values in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from autoscale_enforcer.policy.fit import Reason
from tests.history.record import NodeSeen, Pair

FOREVER = 1 << 62
"""Later than every time of a history."""

ROOM = {
    (True, True): str(Reason.BOTH),
    (True, False): str(Reason.CPU),
    (False, True): str(Reason.MEMORY),
}
"""The words for what there is too little of: CPU, memory."""

OF_THIS_NODE = {*ROOM.values(), str(Reason.TOO_SMALL), str(Reason.UNSETTLED)}
"""Refusals that its holds must explain; others speak of the pod, or of who may grant."""


class Hold(NamedTuple):
    """What one pod holds on the node."""

    cpu: int
    mem: int
    is_fixed: bool = False
    """Binding or bound: it may not move, nor be released."""
    most: Pair | None = None
    """An autoscaled VM's maximum; None for what has no permit."""
    is_heard: bool = False
    """Its agent has asked since the last loss; the first request may bring a permit back."""
    changed: int = 0
    """When the call that changed it last may have reached the service at the latest."""
    lapses: int = FOREVER
    """From then on it may be gone without anybody asking."""


class NodeState(NamedTuple):
    """A node and all that is held there. Share it freely: nothing changes one."""

    capacity: Pair = (0, 0)
    reserved: Pair = (0, 0)
    is_unsettled: bool = False
    """After a loss: whatever is refused or shown is no promise; what is granted must fit."""
    holds: dict[str, Hold] = {}  # noqa: RUF012 - never changed
    mark: int = 0
    """Of all holds, whatever their order: 64 bits, kept up so that states are cheap to compare."""

    @property
    def key(self) -> tuple[object, ...]:
        """Equal states have equal keys."""
        return self.capacity, self.is_unsettled, self.mark

    def having(self, pod: str, hold: Hold | None) -> NodeState:
        """The state in which the pod holds just this."""
        (cpu, mem), mark = self.reserved, self.mark
        holds = self.holds.copy()
        old = holds.pop(pod, None)
        if old:
            cpu, mem, mark = cpu - old.cpu, mem - old.mem, mark ^ hash((pod, old))
        if hold:
            cpu, mem, mark = cpu + hold.cpu, mem + hold.mem, mark ^ hash((pod, hold))
            holds[pod] = hold
        return NodeState(self.capacity, (cpu, mem), self.is_unsettled, holds, mark)

    # What is only looked at

    def short_of(self, pod: str, need: Pair) -> str:
        """What the pod lacks here, in the service's words; "" where it fits.

        A resource of which no more is asked than the pod holds is not judged.
        """
        own = self.holds.get(pod)
        had_cpu, had_mem = (own.cpu, own.mem) if own else (0, 0)
        cpu, mem = need
        no_cpu = cpu > had_cpu and self.reserved[0] - had_cpu + cpu > self.capacity[0]
        no_mem = mem > had_mem and self.reserved[1] - had_mem + mem > self.capacity[1]
        return ROOM[no_cpu, no_mem] if no_cpu or no_mem else ""

    def explains_refusal(self, pod: str, need: Pair, reason: str) -> bool:
        """Whether a reserve or bind may be refused with these words."""
        if reason not in OF_THIS_NODE or self.is_unsettled:
            return True
        own = self.holds.get(pod)
        return not (own and own.is_fixed) and reason == self.short_of(pod, need)

    def explains_filter(self, pod: str, need: Pair, reason: str) -> bool:
        """Whether a filter may say this of the node; "": the pod passes."""
        own = self.holds.get(pod)
        if own and own.is_fixed:
            return reason == ""
        if (reason and reason not in OF_THIS_NODE) or self.is_unsettled:
            return True
        if need[0] > self.capacity[0] or need[1] > self.capacity[1]:
            return reason == Reason.TOO_SMALL
        return reason == self.short_of(pod, need)

    def explains_sums(self, seen: NodeSeen) -> bool:
        """Whether the node may be shown so."""
        if self.is_unsettled or seen.unsettled:
            return self.is_unsettled and seen.unsettled
        return self.sums == (seen.capacity, seen.reserved, seen.pods)

    @property
    def sums(self) -> tuple[Pair, Pair, int]:
        """Capacity, what is reserved, and for how many."""
        return self.capacity, self.reserved, len(self.holds)

    # What changes it: every state that may follow, none where the answer cannot be

    def reserve(
        self, pod: str, need: Pair, *, changed: int, lapses: int, is_bind: bool
    ) -> Iterable[NodeState]:
        """Room is held, or was already; a bind fixes it."""
        own = self.holds.get(pod)
        if own and own.is_fixed:
            surer = own._replace(lapses=max(own.lapses, lapses)) if is_bind else own
            return (self if surer == own else self.having(pod, surer),)
        if self.short_of(pod, need):
            return ()
        return (self.having(pod, Hold(*need, is_fixed=is_bind, changed=changed, lapses=lapses)),)

    def leave(self, pod: str) -> Iterable[NodeState]:
        """The pod is held elsewhere now; one that is fixed here cannot be."""
        own = self.holds.get(pod)
        if own is None:
            return (self,)
        return () if own.is_fixed else (self.having(pod, None),)

    def unreserve(self, pod: str, *, invoked: int) -> Iterable[NodeState]:
        """A hold goes, unless a call that was made later has renewed it."""
        own = self.holds.get(pod)
        if own is None or own.is_fixed:
            return (self,)
        released = self.having(pod, None)
        return (released, self) if own.changed > invoked else (released,)

    def request(
        self, pod: str, asked: Pair, *, factor: Pair, last: Pair, told: Pair | None
    ) -> Iterable[NodeState]:
        """A permit of `told`; None: of whatever the rule gives."""
        own = self.holds.get(pod)
        if own is None or own.most is None:
            return ()
        ranges = []
        for at, had in enumerate((own.cpu, own.mem)):
            begin = min(had, asked[at])
            if last[at] and not own.is_heard:
                begin = min(last[at], asked[at], own.most[at])
            left = max(0, self.capacity[at] - self.reserved[at] + had - begin)
            full = begin + min(asked[at] - begin, left // factor[at] * factor[at])
            ranges.append((begin if self.is_unsettled else full, full))
        (least_cpu, full_cpu), (least_mem, full_mem) = ranges
        if told is None:
            # An unsettled node lets nothing grow.
            amounts = {(full_cpu, full_mem), (least_cpu, least_mem)}
        elif least_cpu <= told[0] <= full_cpu and least_mem <= told[1] <= full_mem:
            amounts = {told}
        else:
            amounts = set()
        return [
            self.having(pod, own._replace(cpu=cpu, mem=mem, is_heard=True)) for cpu, mem in amounts
        ]

    def bound(self, pod: str, amount: Pair, most: Pair) -> Iterable[NodeState]:
        """The cluster has it there, room or not."""
        vm = most if any(most) else None
        return (self.having(pod, Hold(*amount, is_fixed=True, most=vm)),)

    def gone(self, pod: str) -> Iterable[NodeState]:
        """The cluster has it no more."""
        return (self.having(pod, None) if pod in self.holds else self,)

    def wiped(self) -> Iterable[NodeState]:
        """Only what is bound comes back, and permits with their agents."""
        state = self._replace(is_unsettled=True)
        for pod, hold in self.holds.items():
            after = hold._replace(is_heard=False) if hold.is_fixed else None
            if after != hold:
                state = state.having(pod, after)
        return (state,)

    def sized(self, capacity: Pair) -> Iterable[NodeState]:
        """The node has this capacity."""
        return (self._replace(capacity=capacity),)

    def suspect(self, *, lost_since: int, now: int) -> Iterable[NodeState]:
        """What was told may be missing, until the node is settled again.

        A tentative hold may be gone for good where it was made since `lost_since`. What is bound
        comes back from the cluster, and a permit from its agent.
        """
        state = self._replace(is_unsettled=True)
        for pod, hold in self.holds.items():
            lapses = hold.lapses
            if not hold.is_fixed and hold.changed >= lost_since:
                lapses = min(lapses, now)
            after = hold._replace(is_heard=False, lapses=lapses)
            if after != hold:
                state = state.having(pod, after)
        return (state,)

    def shown(self, seen: NodeSeen) -> Iterable[NodeState]:
        """Shown so; a node that is shown as settled is, and then with the right sums."""
        if self.is_unsettled and not seen.unsettled:
            settled = self._replace(is_unsettled=False)
            return (settled,) if settled.explains_sums(seen) else ()
        return (self,) if self.explains_sums(seen) else ()

    def lapsed(self, *, now: int) -> Iterable[NodeState]:
        """Each state in which one more hold has lapsed by then."""
        for pod, hold in self.holds.items():
            if hold.lapses <= now:
                yield self.having(pod, None)
