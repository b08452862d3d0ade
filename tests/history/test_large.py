"""A million operations are judged in minutes and within a GiB."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.history.clients import GIB, MOST, UNIT
from tests.history.node_state import NodeState
from tests.history.record import Op, Operation, Outcome, Recorder

ROOT = Path(__file__).parents[2]
NODES = 128
CAPACITY = (8000, 32 * GIB)
BETWEEN = 100
SPAN = 32 * BETWEEN
"""Up to so long before its effect a call is made, and as long after it is answered: some 32 calls
are going on at any time.
"""


def write_history(path: Path, *, operations: int) -> None:
    """Calls about pods and VMs on many nodes, with the answers that the node gives."""
    chance = random.Random(1)
    states = {f"n{number}": NodeState(CAPACITY) for number in range(NODES)}
    pods: dict[str, list[str]] = {node: [] for node in states}
    now = 0
    with Recorder(path) as records:
        for node, state in states.items():
            now += BETWEEN
            vm = f"vm-{node}"
            write(records, now, Op.NODE, node=node, asked=CAPACITY)
            amounts = {"asked": (UNIT.cpu, UNIT.mem), "most": (MOST.cpu, MOST.mem)}
            write(records, now + 10, Op.BOUND, node=node, pod=vm, **amounts)
            (states[node],) = state.bound(vm, amounts["asked"], amounts["most"])
        now += 2 * SPAN
        while records.written < operations:
            now += BETWEEN
            node = chance.choice(list(states))
            do = chance.choices([reserve, unreserve, request, filtered], weights=[4, 2, 4, 1])[0]
            one, states[node] = do(chance, node, states[node], pods[node], records.written)
            one.invoked = now - chance.randrange(SPAN)
            one.answered = now + chance.randrange(SPAN)
            records.write(one)


def write(records: Recorder, now: int, op: Op, **fields: object) -> None:
    times = {"invoked": now, "answered": now + 1, "outcome": Outcome.DONE}
    records.write(Operation(op=op, client=-1, id=records.written, **(times | fields)))  # type: ignore[arg-type]


Told = tuple[Operation, NodeState]
Do = Callable[[random.Random, str, NodeState, list[str], int], Told]


def reserve(
    chance: random.Random, node: str, state: NodeState, pods: list[str], number: int
) -> Told:
    pod, need = f"p{number}", (chance.randint(1, 8) * 250, chance.randint(1, 8) * GIB)
    one = call(Op.RESERVE, number, node, pod, need)
    found = list(state.reserve(pod, need, changed=0, lapses=0, is_bind=False))
    if not found:
        one.outcome, one.reason = Outcome.REFUSED, state.short_of(pod, need)
        return one, state
    pods.append(pod)
    return one, found[0]


def unreserve(
    chance: random.Random, node: str, state: NodeState, pods: list[str], number: int
) -> Told:
    pod = pods.pop(chance.randrange(len(pods))) if pods else "nobody"
    (after, *_) = state.unreserve(pod, invoked=0)
    return call(Op.UNRESERVE, number, node, pod), after


def request(chance: random.Random, node: str, state: NodeState, _: list[str], number: int) -> Told:
    vm = f"vm-{node}"
    had = state.holds[vm]
    asked = (chance.randint(1, 8) * UNIT.cpu, chance.randint(1, 8) * UNIT.mem)
    one = call(Op.REQUEST, number, node, vm, asked)
    one.factor, one.last = (UNIT.cpu, UNIT.mem), (had.cpu, had.mem)
    (after,) = state.request(vm, asked, factor=one.factor, last=one.last, told=None)
    one.told = (after.holds[vm].cpu, after.holds[vm].mem)
    return one, after


def filtered(chance: random.Random, node: str, state: NodeState, _: list[str], number: int) -> Told:
    need = (chance.randint(1, 8) * 250, chance.randint(1, 8) * GIB)
    one = call(Op.FILTER, number, "", f"p{number}", need)
    one.seen = {node: state.short_of(one.pod, need)}
    return one, state


def call(op: Op, number: int, node: str, pod: str, asked: tuple[int, int] = (0, 0)) -> Operation:
    return Operation(
        op=op,
        client=number % 64,
        id=number,
        invoked=0,
        node=node,
        pod=pod,
        asked=asked,
        outcome=Outcome.DONE,
    )


@pytest.mark.parametrize(
    "operations",
    [
        10_000,
        pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
def test_a_large_history_is_judged_in_minutes_within_a_gib(
    tmp_path: Path, operations: int, record_property: Callable[[str, object], None]
) -> None:
    path = tmp_path / "history.jsonl"
    write_history(path, operations=operations)

    began = time.monotonic()
    command = [sys.executable, "-m", "tests.history.check", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    took = time.monotonic() - began

    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    record_property("printed", f"{operations} operations: {took:.0f} s, {most >> 20} MiB")
    assert done.stdout == f"{operations} operations on {NODES} nodes: every answer is explained\n"
    assert most < GIB
    assert took < 600
