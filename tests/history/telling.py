"""Short histories, told by hand: one node of 1000m and 8Gi unless said otherwise."""

from __future__ import annotations

from itertools import count
from typing import Any

from autoscale_enforcer.policy.fit import Reason
from tests.history.clients import GIB
from tests.history.record import CLUSTER, NodeSeen, Op, Operation, Outcome, Pair

CPU = str(Reason.CPU)
ELSEWHERE = str(Reason.ELSEWHERE)

_ids = count(1)


def tell(op: Op, begins: int, ends: int | None, **fields: Any) -> Operation:
    """One operation; done, or unknown where it has no end."""
    outcome = Outcome.UNKNOWN if ends is None else Outcome.DONE
    told: dict[str, Any] = {"client": 0, "id": next(_ids), "outcome": outcome, "node": "n1"}
    return Operation(op=op, invoked=begins, answered=ends, **(told | fields))


def cluster(*, nodes: int = 1, cpu: int = 1000) -> list[Operation]:
    """Nodes n1, n2, … as known from the start; what follows begins at 10 or later."""
    size = (cpu, 8 * GIB)
    names = [f"n{number}" for number in range(1, nodes + 1)]
    return [tell(Op.NODE, 0, 1, node=name, asked=size, client=CLUSTER) for name in names]


def reserve(
    pod: str, begins: int, ends: int | None, *, cpu: int = 600, refused: str = "", **fields: Any
) -> Operation:
    """A pod of 600m asks for room; `refused` says why not."""
    if refused:
        fields |= {"outcome": Outcome.REFUSED, "reason": refused}
    return tell(Op.RESERVE, begins, ends, pod=pod, asked=(cpu, GIB), **fields)


def bind(pod: str, begins: int, ends: int | None, *, cpu: int = 600, **fields: Any) -> Operation:
    return tell(Op.BIND, begins, ends, pod=pod, asked=(cpu, GIB), **fields)


def unreserve(pod: str, begins: int, ends: int | None, **fields: Any) -> Operation:
    return tell(Op.UNRESERVE, begins, ends, pod=pod, **fields)


def gone(pod: str, begins: int, ends: int | None) -> Operation:
    return tell(Op.GONE, begins, ends, pod=pod, node="", client=CLUSTER)


def vm(name: str, *, cpu: int = 250) -> Operation:
    """A VM bound from the start, of at most 2 CPU."""
    amounts = {"asked": (cpu, GIB), "most": (2000, 8 * GIB)}
    return tell(Op.BOUND, 2, 3, pod=name, client=CLUSTER, **amounts)


def request(
    name: str,
    begins: int,
    ends: int | None,
    *,
    cpu: int,
    told: int = 0,
    last: int = 250,
    mem: int = GIB,
    **fields: Any,
) -> Operation:
    """Its agent asks for CPU."""
    return tell(
        Op.REQUEST,
        begins,
        ends,
        pod=name,
        asked=(cpu, mem),
        factor=(250, GIB),
        last=(last, GIB),
        told=(told, GIB) if told else (0, 0),
        **fields,
    )


def filtered(pod: str, begins: int, ends: int, *, cpu: int = 600, **nodes: str) -> Operation:
    """What a filter said of each node; "": passes."""
    return tell(Op.FILTER, begins, ends, pod=pod, asked=(cpu, GIB), node="", seen=nodes)


def shown(
    begins: int, ends: int, cpu: int, pods: int, *, unsettled: bool = False, capacity: int = 1000
) -> Operation:
    """What people were shown of n1; each pod has 1Gi."""
    reserved: Pair = (cpu, pods * GIB)
    seen = {"n1": NodeSeen((capacity, 8 * GIB), reserved, pods, unsettled)}
    return tell(Op.READ, begins, ends, node="", seen=seen)


def epoch(begins: int, ends: int | None, **fields: Any) -> Operation:
    return tell(Op.EPOCH, begins, ends, node="", client=CLUSTER, **fields)
