"""What a campaign calls lost, doubled, dropped or over capacity; and that it can."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscale_enforcer.ledger.verify import Books
from autoscale_enforcer.model.ids import PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import PodRow
from tests.fault.chaos.known import Witness
from tests.fault.chaos.result import Result
from tests.history.record import Call, Op

GIB = 1 << 30


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    with Witness(tmp_path / "history", hold_seconds=30) as witness:
        yield witness


def call(witness: Witness, op: Op, node: str = "n1", *, pod: str = "u1") -> Call:
    return witness.invoke(op, client=1, pod=pod, node=node)


def books(node: str = "-", stage: str = "held", *, uid: str = "u1", cpu: int = 1000) -> Books:
    """One pod at that place; `-` holds nothing."""
    stage = "pending" if node == "-" else stage
    row = PodRow(name=f"default/{uid}", node=node, stage=stage, cpu=cpu, mem=GIB)
    return Books(pods={PodUid(uid): row})


def judged(witness: Witness, found: Books) -> list[str]:
    return [each.kind for each in witness.differences(found, witness.marks())]


def test_hold_that_was_told_and_is_not_there_is_lost(witness: Witness) -> None:
    call(witness, Op.RESERVE).done()

    assert judged(witness, books("n1")) == []
    assert judged(witness, books("-")) == ["lost"]
    assert judged(witness, books("-")) == []  # told once
    assert judged(witness, Books()) == []


def test_hold_on_another_node_than_was_told_is_doubled(witness: Witness) -> None:
    call(witness, Op.RESERVE).done()

    assert judged(witness, books("n2")) == ["doubled"]


def test_hold_that_was_given_back_and_is_there_is_doubled(witness: Witness) -> None:
    call(witness, Op.RESERVE).done()
    call(witness, Op.UNRESERVE).done()

    assert judged(witness, books("n1")) == ["doubled"]


def test_unanswered_calls_may_or_may_not_have_happened(witness: Witness) -> None:
    call(witness, Op.RESERVE).done()
    call(witness, Op.RESERVE, "n2").unknown("timeout")
    call(witness, Op.UNRESERVE).unknown("timeout")

    assert [judged(witness, books(node)) for node in ("n1", "n2", "-")] == [[], [], []]
    assert judged(witness, books("n3")) == ["doubled"]


def test_hold_may_lapse_after_its_lifetime_and_a_bound_pod_may_not(tmp_path: Path) -> None:
    with Witness(tmp_path / "history", hold_seconds=0) as witness:
        call(witness, Op.RESERVE).done()
        call(witness, Op.BIND, pod="u2").done()

        assert judged(witness, Books()) == ["lost"]


def test_bound_pod_whose_confirm_is_still_to_come_is_not_lost(witness: Witness) -> None:
    call(witness, Op.BIND).done()

    assert judged(witness, books("n1", "binding")) == []
    assert judged(witness, books("n2", "bound")) == ["doubled"]


def test_pod_about_which_something_is_going_on_is_not_judged(witness: Witness) -> None:
    call(witness, Op.RESERVE).done()
    marks = witness.marks()
    going_on = call(witness, Op.UNRESERVE)

    assert judged(witness, Books()) == []
    going_on.done()
    assert witness.differences(Books(), marks) == []  # it has changed since


def test_deleted_pod_is_not_judged(witness: Witness) -> None:
    call(witness, Op.BIND).done()
    witness.happens(Op.GONE, pod="u1")

    assert judged(witness, Books()) == []


def test_permit_below_what_was_told_is_lost(witness: Witness) -> None:
    witness.known(Op.BOUND, pod="vm", node="n1", asked=(250, GIB))
    ask = witness.invoke(Op.REQUEST, client=1, pod="vm", node="n1", asked=(1000, GIB))
    ask.done(told=Resources(1000, GIB))

    assert judged(witness, books("n1", "bound", uid="vm", cpu=1000)) == []
    assert judged(witness, books("n1", "bound", uid="vm", cpu=750)) == ["lost"]


def test_vm_that_asked_for_less_uses_less_even_unanswered(witness: Witness) -> None:
    witness.known(Op.BOUND, pod="vm", node="n1", asked=(1000, GIB))
    ask = witness.invoke(Op.REQUEST, client=1, pod="vm", node="n1", asked=(500, GIB))
    assert witness.vms["vm"].used == Resources(500, GIB)
    ask.unknown("timeout")

    assert witness.vms["vm"].used == Resources(500, GIB)
    assert judged(witness, books("n1", "bound", uid="vm", cpu=500)) == []


@pytest.mark.parametrize("what", ["lost", "doubled", "over_commits", "unexplained", "breaches"])
def test_campaign_fails_for_each_thing_that_must_not_be(what: str) -> None:
    result = Result(seed=1, undecided=["n1"])
    assert result.is_good

    setattr(result, what, ["n1"])

    assert not result.is_good
