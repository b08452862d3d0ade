"""Histories out of sequential runs of the model, `tests.reference.books`: each has an order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from autoscale_enforcer.ledger.outcomes import Permit, Reserve
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import NO_WORD, PodRow
from autoscale_enforcer.policy.fit import SHORT_OF, Reason
from tests.history.clients import GIB, MOST, UNIT
from tests.history.record import CLUSTER, NodeSeen, Op, Operation, Outcome, Pair
from tests.reference.books import Books
from tests.reference.node import Node
from tests.reference.taking_in import with_amount

TOKEN = "leads"
CAPACITY = Resources(2000, 8 * GIB)
BETWEEN = 100
"""From one effect to the next."""

ANSWERS = {
    Reserve.HELD: "",
    Reserve.BINDING: "",
    Reserve.BOUND: "",
    Reserve.BUSY: str(Reason.ELSEWHERE),
    Reserve.CONFLICT: str(Reason.ELSEWHERE),
    Reserve.GONE: str(Reason.GONE),
}


@dataclass(slots=True)
class Telling:
    """One run, and the history of it so far."""

    random: random.Random
    overlap: int
    """How many effects a call may span, before its own and after."""
    nodes: int = 3
    vms: int = 3
    pods: int = 6
    books: Books = field(default_factory=lambda: Books(epoch="e1", token=TOKEN))
    told: list[Operation] = field(default_factory=list)
    now: int = 1_000_000

    def begin(self) -> None:
        """Nodes and VMs, known to all."""
        for number in range(self.nodes):
            name, capacity = f"n{number}", (CAPACITY.cpu, CAPACITY.mem)
            self.books.put_node(NodeName(name), Node(name, "1", "1", CAPACITY), token=TOKEN)
            self.known(Op.NODE, node=name, asked=capacity)
        for number in range(self.vms):
            uid, node = f"v{number}", f"n{number % self.nodes}"
            row = PodRow(
                name=f"s/{uid}",
                node=node,
                rv="1",
                vm=1,
                scaled=1,
                use_cpu=UNIT.cpu,
                use_mem=UNIT.mem,
                max_cpu=MOST.cpu,
                max_mem=MOST.mem,
            )
            said = with_amount(row, UNIT)
            self.books.put_pod(PodUid(uid), said=said, token=TOKEN, now=self.now)
            most = (MOST.cpu, MOST.mem)
            self.known(Op.BOUND, pod=uid, node=node, asked=(UNIT.cpu, UNIT.mem), most=most)

    def known(self, op: Op, *, pod: str = "", node: str, asked: Pair, most: Pair = (0, 0)) -> None:
        self.now += BETWEEN
        self.told.append(
            Operation(
                op=op,
                client=CLUSTER,
                id=len(self.told),
                invoked=self.now,
                answered=self.now + 1,
                outcome=Outcome.DONE,
                pod=pod,
                node=node,
                asked=asked,
                most=most,
            )
        )

    def go_on(self) -> None:
        """One more call; some are never answered, whether they had an effect or not."""
        self.now += BETWEEN
        before, after = (self.random.randint(0, self.overlap * BETWEEN) for _ in range(2))
        do = self.random.choices(
            [self.reserve, self.bind, self.unreserve, self.request, self.gone, self.read],
            weights=[8, 2, 4, 6, 1, 4],
        )[0]
        one = do()
        one.invoked, one.answered, one.id = self.now - before, self.now + after, len(self.told)
        if one.op not in (Op.READ, Op.FILTER) and self.random.random() < 0.1:
            one.outcome, one.answered, one.reason, one.told = Outcome.UNKNOWN, None, "", (0, 0)
        self.told.append(one)

    def reserve(self) -> Operation:
        one = self.of_pod(Op.RESERVE)
        return self.placed(one, self.place(one, is_bind=False))

    def bind(self) -> Operation:
        one = self.of_pod(Op.BIND)
        reason = self.place(one, is_bind=True)
        if not reason:
            uid, node = PodUid(one.pod), NodeName(one.node)
            self.books.confirm(uid, node=node, said=None, now=self.now)
        return self.placed(one, reason)

    def unreserve(self) -> Operation:
        one = self.of_pod(Op.UNRESERVE)
        self.books.unreserve(PodUid(one.pod), node=NodeName(one.node), stamp=self.now)
        one.outcome = Outcome.DONE
        return one

    def gone(self) -> Operation:
        one = self.of_pod(Op.GONE)
        self.books.delete_pod(PodUid(one.pod), token=TOKEN, now=self.now)
        one.client, one.outcome = CLUSTER, Outcome.DONE
        return one

    def request(self) -> Operation:
        uid = f"v{self.random.randrange(self.vms)}"
        row = self.books.pods[PodUid(uid)]
        asked = Resources(
            self.random.randint(1, 8) * UNIT.cpu, self.random.randint(1, 8) * UNIT.mem
        )
        answer = self.books.request(
            PodName(row.name),
            asked=asked,
            factor=UNIT,
            last=row.amount,
            stamp=self.now,
            now=self.now,
        )
        if answer.outcome is not Permit.PERMIT:
            raise AssertionError(f"{uid} has no permit: {answer}")
        one = self.call(Op.REQUEST, uid, row.node)
        one.asked, one.factor = (asked.cpu, asked.mem), (UNIT.cpu, UNIT.mem)
        one.last, one.told = (row.cpu, row.mem), (answer.amount.cpu, answer.amount.mem)
        one.outcome = Outcome.DONE
        return one

    def read(self) -> Operation:
        one = self.call(Op.READ)
        one.seen, one.outcome = {}, Outcome.DONE
        for name in self.books.nodes:
            row = self.books.node_row(name)
            capacity, reserved = row.capacity, row.reserved
            one.seen[name] = NodeSeen(
                (capacity.cpu, capacity.mem), (reserved.cpu, reserved.mem), row.pods
            )
        return one

    # Parts

    def call(self, op: Op, pod: str = "", node: str = "") -> Operation:
        return Operation(op=op, client=0, id=0, invoked=0, pod=pod, node=node)

    def of_pod(self, op: Op) -> Operation:
        """A call about any pod, mostly for where it is; its size is in its name."""
        number = self.random.randrange(self.pods)
        row = self.books.pods.get(PodUid(f"p{number}"))
        node = f"n{self.random.randrange(self.nodes)}"
        if row and row.node != NO_WORD and self.random.random() < 0.6:
            node = row.node
        one = self.call(op, f"p{number}", node)
        one.asked = (125 * (number + 1), GIB)
        return one

    def place(self, one: Operation, *, is_bind: bool) -> str:
        said = with_amount(PodRow(name=f"s/{one.pod}", rv="1"), Resources(*one.asked))
        answer = self.books.reserve(
            PodUid(one.pod),
            node=NodeName(one.node),
            said=said,
            to="binding" if is_bind else "held",
            stamp=self.now,
            hold_ms=1_000_000,
            now=self.now,
        )
        return str(SHORT_OF[answer.short]) if answer.short else ANSWERS[answer.outcome]

    @staticmethod
    def placed(one: Operation, reason: str) -> Operation:
        one.outcome = Outcome.REFUSED if reason else Outcome.DONE
        one.reason = reason
        return one


def told_by_books(seed: int, *, steps: int, overlap: int) -> list[Operation]:
    """A history in the order of its calls."""
    telling = Telling(random.Random(seed), overlap)
    telling.begin()
    telling.now += overlap * BETWEEN
    for _ in range(steps):
        telling.go_on()
    return sorted(telling.told, key=lambda each: each.invoked)
