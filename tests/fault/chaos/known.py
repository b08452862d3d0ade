"""What the clients of a campaign have been told, and so what the books must say."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from autoscale_enforcer.ledger.verify import Books
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import PodRow
from tests.history.record import CLUSTER, Call, Op, Operation, Outcome, Recorder

SECOND = 1_000_000_000
NOWHERE = ""


@dataclass(slots=True)
class Known:
    """One pod, as its client knows it."""

    told: frozenset[str] = frozenset({NOWHERE})
    """Where it was, by the last answer; NOWHERE where it holds nothing."""
    told_at: int = 0
    """When the call that says so was made."""
    is_bound: bool = False
    is_gone: bool = False
    perhaps: set[str] = field(default_factory=set)
    """Where calls that were never answered may have taken it, or may still do so."""
    going_on: int = 0
    changes: int = 0
    """Calls that began or ended."""


@dataclass(slots=True)
class KnownVm:
    """One VM, as its agent knows it."""

    node: str
    told: Resources
    told_at: int = 0
    unanswered: Resources | None = None
    """The least of what was asked without an answer: before it asks for less, a VM has shrunk."""
    asking: Resources | None = None
    """What it is asking for now."""
    going_on: int = 0
    changes: int = 0

    @property
    def used(self) -> Resources:
        """The most that the VM may be using."""
        every = [each for each in (self.told, self.unanswered, self.asking) if each]
        return Resources(min(each.cpu for each in every), min(each.mem for each in every))


@dataclass(frozen=True, slots=True)
class Difference:
    """What was told is not what the books say."""

    kind: str
    """lost, or doubled."""
    uid: str
    told_at: int
    text: str


class Witness(Recorder):
    """Records a history, and keeps what it says about each pod and VM by now."""

    def __init__(self, *given: Any, hold_seconds: float, **named: Any) -> None:
        super().__init__(*given, **named)
        self._hold_ns = int(hold_seconds * SECOND)
        self.pods: dict[str, Known] = {}
        self.vms: dict[str, KnownVm] = {}

    @override
    def invoke(self, op: Op, *, client: int, **fields: Any) -> Call:
        call = super().invoke(op, client=client, **fields)
        known = self._about(call.operation)
        if known:
            known.going_on += 1
            known.changes += 1
        if isinstance(known, KnownVm):
            known.asking = Resources(*call.operation.asked)
        if op is Op.GONE:
            self.pods.setdefault(call.operation.pod, Known()).is_gone = True
        return call

    @override
    def _ended(self, operation: Operation) -> None:
        known = self._about(operation)
        if known:
            known.going_on -= 1
            known.changes += 1
        if operation.client == CLUSTER and operation.op is Op.BOUND:
            self.vms[operation.pod] = KnownVm(operation.node, Resources(*operation.asked))
        elif isinstance(known, Known):
            self._pod_told(known, operation)
        elif isinstance(known, KnownVm):
            self._vm_told(known, operation)
        super()._ended(operation)

    def _about(self, operation: Operation) -> Known | KnownVm | None:
        if operation.op is Op.REQUEST:
            return self.vms[operation.pod]
        if operation.op in (Op.RESERVE, Op.UNRESERVE, Op.BIND):
            return self.pods.setdefault(operation.pod, Known())
        return None

    def _pod_told(self, known: Known, operation: Operation) -> None:
        takes = operation.op is not Op.UNRESERVE
        if operation.outcome is Outcome.UNKNOWN:
            known.perhaps.add(operation.node if takes else NOWHERE)
            if operation.op is Op.BIND:
                known.perhaps.add(NOWHERE)  # a Binding that was refused gives its hold up
        elif operation.outcome is Outcome.DONE and (takes or operation.node in known.told):
            if known.is_bound and not takes:
                return  # a bound pod is not given back
            known.told = frozenset({operation.node if takes else NOWHERE})
            known.told_at = operation.invoked
            known.is_bound = known.is_bound or operation.op is Op.BIND

    @staticmethod
    def _vm_told(known: KnownVm, operation: Operation) -> None:
        if operation.outcome is Outcome.DONE:
            known.told, known.told_at = Resources(*operation.told), operation.invoked
            known.unanswered = None
        elif operation.outcome is Outcome.UNKNOWN:
            known.unanswered = known.used
        known.asking = None

    # Judging

    def marks(self) -> dict[str, int]:
        """What can be judged: nothing is going on about it. To be handed to `differences`."""
        every: dict[str, Known | KnownVm] = {**self.pods, **self.vms}
        return {uid: known.changes for uid, known in every.items() if not known.going_on}

    def differences(self, books: Books, marks: dict[str, int]) -> list[Difference]:
        """Where books read after `marks` say other than was told; what changed since is left out.

        What differs is taken as the books have it from then on, so it is told once.
        """
        rows = {str(uid): row for uid, row in books.pods.items()}
        now = time.monotonic_ns()
        found = []
        for uid, known in self.pods.items():
            if marks.get(uid) == known.changes and not known.is_gone:
                found += self._pod_difference(uid, known, rows.get(uid), now)
        for uid, vm in self.vms.items():
            if marks.get(uid) == vm.changes:
                found += _vm_difference(uid, vm, rows.get(uid))
        return found

    def _pod_difference(
        self, uid: str, known: Known, row: PodRow | None, now: int
    ) -> list[Difference]:
        place = row.node if row and row.holds else NOWHERE
        may_lapse = not known.is_bound and now - known.told_at > self._hold_ns
        allowed = known.told | known.perhaps | ({NOWHERE} if may_lapse else set())
        if place in allowed:
            return []  # bound, and still binding in the books: its confirm waits for the sweep
        kind = "lost" if place == NOWHERE else "doubled"
        text = f"told {sorted(known.told)}, perhaps {sorted(known.perhaps)}, books {row}"
        difference = Difference(kind, uid, known.told_at, text)
        known.perhaps.add(place)
        return [difference]

    def forget_gone(self, present: set[str]) -> None:
        """Drop pods that were deleted and are not in the cluster any more: a campaign has very
        many.
        """
        for uid in self.pods.keys() - present:
            if self.pods[uid].is_gone and not self.pods[uid].going_on:
                del self.pods[uid]


def _vm_difference(uid: str, vm: KnownVm, row: PodRow | None) -> list[Difference]:
    amount = row.amount if row else Resources()
    if amount.cpu >= vm.used.cpu and amount.mem >= vm.used.mem:
        return []
    text = f"told {vm.told}, uses {vm.used}, books {row}"
    return [Difference("lost", uid, vm.told_at, text)]
