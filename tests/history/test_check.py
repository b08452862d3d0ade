"""Histories told by hand: what some order explains is accepted, what none explains is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.check import check, main
from tests.history.clients import GIB
from tests.history.effort import SearchSettings
from tests.history.record import NodeSeen, Op, Operation, Outcome, Recorder
from tests.history.telling import (
    CPU,
    ELSEWHERE,
    bind,
    cluster,
    epoch,
    filtered,
    gone,
    request,
    reserve,
    shown,
    tell,
    unreserve,
    vm,
)
from tests.history.ways import UNBUILT

LIFETIME = 1000
STAMP_LAG = 100
STRICT = SearchSettings(
    hold_lifetime=LIFETIME, unanswered_for=100_000, stamp_lag=STAMP_LAG, most_tries=20_000
)
LATER = 40 + STAMP_LAG


def is_explained(*operations: Operation, nodes: int = 1) -> bool:
    history = sorted([*cluster(nodes=nodes), *operations], key=lambda each: each.invoked)
    return check(history, settings=STRICT).is_linearizable


ACCEPTED = {
    "nothing": [],
    "a refusal after the grant that explains it": [
        reserve("a", 10, 20),
        reserve("b", 30, 40, refused=CPU),
    ],
    "a refusal beside the grant, answered first": [
        reserve("a", 10, 40),
        reserve("b", 15, 20, refused=CPU),
    ],
    "room that was released meanwhile": [
        reserve("a", 10, 20),
        unreserve("a", 30, 60),
        reserve("b", 40, 50),
    ],
    "a grant again, which changes nothing": [
        reserve("a", 10, 20),
        reserve("a", 30, 40),
        shown(50, 60, 600, 1),
    ],
    "a grant without an answer that had no effect": [
        reserve("a", 10, None),
        reserve("b", 30, 40),
    ],
    "a grant without an answer that had an effect": [
        reserve("a", 10, None),
        reserve("b", 30, 40, refused=CPU),
    ],
    "a grant without an answer that came late": [
        reserve("a", 10, None),
        shown(30, 40, 0, 0),
        shown(50, 60, 600, 1),
    ],
    "a read that sees a write which is never acknowledged": [
        reserve("a", 10, None),
        filtered("b", 30, 40, n1=CPU),
    ],
    "an unreserve that the grant beside it outlived": [
        reserve("a", 10, 40),
        unreserve("a", 20, 30),
        shown(50, 60, 600, 1),
    ],
    "a bind that was given up, without an answer": [
        bind("a", 10, None),
        shown(30, 40, 600, 1),
        shown(50, 60, 0, 0),
    ],
    "a hold that has lapsed": [
        reserve("a", 10, 20),
        reserve("b", 30 + LIFETIME, 40 + LIFETIME),
    ],
    "room of a pod that is gone": [
        bind("a", 10, 20),
        gone("a", 30, None),
        bind("b", 40, 50),
    ],
    "a pod that was placed and deleted at once": [
        gone("a", 10, 40),
        reserve("a", 20, None),
        shown(25, 30, 600, 1),
        shown(50, 60, 0, 0),
    ],
    "permits that share what there is": [
        vm("v"),
        vm("w"),
        request("v", 10, 40, cpu=500, told=500),
        request("w", 15, 30, cpu=1000, told=500),
    ],
    "a permit that came after the shrinking beside it": [
        vm("v"),
        vm("w", cpu=750),
        request("w", 10, 40, cpu=250, told=250),
        request("v", 15, 30, cpu=750, told=750),
    ],
    "a permit brought back by lastPermit, though there is no room": [
        vm("v"),
        bind("a", 10, 20),
        request("v", 30, 40, cpu=1000, told=1000, last=1000),
    ],
    "a filter of a pod that is bound there, on a full node": [
        bind("a", 10, 20, cpu=1000),
        filtered("a", 30, 40, cpu=1000, n1=""),
    ],
    "anything refused while the node is unsettled": [
        epoch(10, 20),
        reserve("a", 30, 40, refused=CPU),
        shown(50, 60, 123, 7, unsettled=True),
        shown(70, 80, 0, 0),
    ],
    "a hold that a promotion lost, as the record says": [
        reserve("a", 20, 30),
        epoch(40, 50, lost_since=25),
        shown(60, 70, 0, 0),
    ],
    "a hold that went with the books": [
        reserve("a", 20, 30),
        epoch(40, 50, is_wiped=True),
        shown(60, 70, 0, 0),
    ],
    "a bind without an answer, found by the build of the next books": [
        bind("a", 20, None, given_up=30, replica="r1"),
        epoch(LATER, LATER + 10, is_wiped=True),
        shown(LATER + 20, LATER + 30, 600, 1),
    ],
    "a hold without an answer that no replica has given up, under the next books": [
        reserve("a", 20, None, given_up=30),
        epoch(LATER, LATER + 10, is_wiped=True),
        shown(LATER + 20, LATER + 30, 600, 1),
    ],
    "a request without an answer that could not grow on an unsettled node": [
        vm("v", cpu=750),
        epoch(10, 20),
        request("v", 30, None, cpu=500, last=750, mem=2 * GIB),
        shown(70, 80, 500, 1),
    ],
    "a read that shows the node as settled, before a grant that ended earlier": [
        vm("v", cpu=500),
        epoch(10, 20),
        request("v", 30, 40, cpu=750, told=750),
        shown(50, 80, 750, 1),
        reserve("a", 60, 70, cpu=125),
    ],
    "reads that only an order other than that of the answers explains": [
        reserve("a", 10, 100),
        reserve("b", 10, 90, cpu=300),
        shown(20, 60, 600, 1),
        shown(70, 80, 900, 2),
    ],
}

REJECTED = {
    "granted twice": [reserve("a", 10, 20), reserve("b", 30, 40)],
    "granted twice at once": [reserve("a", 10, 40), reserve("b", 15, 30)],
    "a refusal without a reason": [reserve("a", 10, 20, refused=CPU)],
    "a refusal for the wrong resource": [
        reserve("a", 10, 20),
        reserve("b", 30, 40, refused="Insufficient memory left by reservations"),
    ],
    "a refusal answered before the only grant was asked for": [
        reserve("b", 10, 20, refused=CPU),
        reserve("a", 30, 40),
    ],
    "a filter that misses a hold": [reserve("a", 10, 20), filtered("b", 30, 40, n1="")],
    "a hold that lapsed too early": [
        reserve("a", 10, 20),
        reserve("b", LIFETIME - 20, LIFETIME - 10),
    ],
    "a bound pod that lapsed": [bind("a", 10, 20), reserve("b", 30 + LIFETIME, 40 + LIFETIME)],
    "an acknowledged release that did not happen": [
        reserve("a", 10, 20),
        unreserve("a", 30, 40),
        shown(50, 60, 600, 1),
    ],
    "a bound pod that was released": [
        bind("a", 10, 20),
        unreserve("a", 30, 40),
        shown(50, 60, 0, 0),
    ],
    "sums that are off by one": [reserve("a", 10, 20), shown(30, 40, 601, 1)],
    "a write without an answer that was seen and then was not": [
        bind("b", 5, 6, cpu=100),
        request("b", 10, None, cpu=500),
        shown(30, 40, 600, 1),
    ],
    "a permit beyond what is left": [
        vm("v"),
        bind("a", 10, 20),
        request("v", 30, 40, cpu=1000, told=500),
    ],
    "a permit of less than what is left": [vm("v"), request("v", 10, 20, cpu=1000, told=500)],
    "lastPermit brings a permit back once only": [
        vm("v"),
        bind("a", 10, 20),
        request("v", 30, 40, cpu=250, told=250),
        request("v", 50, 60, cpu=1000, told=1000, last=1000),
    ],
    "a grant over what is held while the node is unsettled": [
        bind("a", 10, 20),
        epoch(30, 40),
        reserve("b", 50, 60),
    ],
    "a permit that a promotion lost": [
        vm("v"),
        request("v", 10, 20, cpu=1000, told=1000),
        epoch(30, 40),
        reserve("b", 50, 60),
    ],
    "a hold that a promotion lost, though the record says that nothing was": [
        reserve("a", 20, 30),
        epoch(40, 50),
        shown(60, 70, 0, 0),
    ],
    "a hold that a promotion lost, though it is older": [
        reserve("a", 20, 30),
        epoch(40, 50, lost_since=35),
        shown(60, 70, 0, 0),
    ],
    "a bound pod that a promotion lost": [
        bind("a", 20, 30),
        epoch(40, 50, lost_since=25),
        shown(60, 70, 0, 0),
    ],
    "a hold that outlived the books": [
        reserve("a", 20, 30),
        epoch(40, 50, is_wiped=True),
        shown(60, 70, 600, 1),
    ],
    "a bound pod that went with the books": [
        bind("a", 20, 30),
        epoch(40, 50, is_wiped=True),
        shown(60, 70, 0, 0),
    ],
    "a hold that a replica gave up under the books before": [
        reserve("a", 20, None, given_up=30, replica="r1"),
        epoch(LATER, LATER + 10, is_wiped=True),
        shown(LATER + 20, LATER + 30, 600, 1),
    ],
    "a bind that was refused because there were no books, and came after the next began": [
        bind("a", 20, None, given_up=30, replica="r1", reason=UNBUILT),
        epoch(LATER, LATER + 10, is_wiped=True),
        shown(LATER + 20, LATER + 30, 0, 0),
        shown(LATER + 40, LATER + 50, 600, 1),
    ],
    "unsettled though nothing was lost": [
        shown(10, 20, 0, 0),
        shown(30, 40, 0, 0, unsettled=True),
    ],
}


@pytest.mark.parametrize("operations", ACCEPTED.values(), ids=ACCEPTED)
def test_what_some_order_explains_is_accepted(operations: list[Operation]) -> None:
    assert is_explained(*operations)


@pytest.mark.parametrize("operations", REJECTED.values(), ids=REJECTED)
def test_what_no_order_explains_is_rejected(operations: list[Operation]) -> None:
    assert not is_explained(*operations)


MOVED = [reserve("a", 10, 20), reserve("a", 30, 40, node="n2")]


def test_a_move_makes_room_where_the_pod_was() -> None:
    assert is_explained(*MOVED, reserve("b", 50, 60), nodes=2)


def test_a_pod_that_moved_is_not_where_it_was() -> None:
    assert not is_explained(*MOVED, shown(50, 60, 600, 1), nodes=2)


def test_a_pod_that_moved_is_where_it_went() -> None:
    assert not is_explained(*MOVED, reserve("b", 50, 60, node="n2"), nodes=2)


def test_a_bound_pod_is_bound_nowhere_else() -> None:
    assert not is_explained(bind("a", 10, 20), bind("a", 30, 40, node="n2"), nodes=2)
    refused = bind("a", 30, 40, node="n2", outcome=Outcome.REFUSED, reason=ELSEWHERE)
    assert is_explained(bind("a", 10, 20), refused, nodes=2)


def test_a_move_without_an_answer_may_come_after_later_calls() -> None:
    late = reserve("a", 10, None, node="n2")
    there = reserve("a", 20, 30)

    assert is_explained(late, there, shown(40, 50, 600, 1), shown(60, 70, 0, 0), nodes=2)


def test_many_unanswered_calls_do_not_hide_a_double_grant() -> None:
    lost = [reserve(f"lost-{number}", 10, None, cpu=10) for number in range(40)]

    assert is_explained(*lost, reserve("a", 30, 40))
    granted = [reserve("a", 30, 40), reserve("b", 50, 60)]
    report = check([*cluster(), *lost, *granted], settings=STRICT)
    assert [each.is_proven for each in report.counterexamples] == [True]


def test_the_only_explanation_is_found_among_many_unanswered_calls() -> None:
    """A search that stopped at its limit had thrown away what it had found by then."""
    lost = [bind(f"lost-{cpu}", cpu, None, cpu=cpu) for cpu in range(10, 50)]
    seen = shown(60, 70, 48 + 49, 2)

    history = sorted([*cluster(), *lost, seen], key=lambda each: each.invoked)

    assert check(history, settings=STRICT).is_linearizable


def test_a_wipe_ends_what_was_held_and_what_was_not_answered() -> None:
    """Each hold was taken to be perhaps there still, and each call to come perhaps yet: after one
    wipe of a busy node there were too many possibilities to decide anything.
    """
    held = [reserve(f"held-{number}", 10, 20, cpu=10) for number in range(7)]
    lost = [
        reserve(f"lost-{number}", 21, None, cpu=10, given_up=30, replica="r1")
        for number in range(60)
    ]
    wipe = epoch(LATER, LATER + 10, is_wiped=True)
    right, wrong = (shown(LATER + 20, LATER + 30, cpu, 1) for cpu in (600, 605))
    again = reserve("a", LATER + 12, LATER + 14)

    before = [*cluster(), *held, *lost, wipe, again]
    reports = [check([*before, seen], settings=STRICT) for seen in (right, wrong)]

    assert [(each.is_linearizable, each.is_decided) for each in reports] == [
        (True, True),
        (False, True),
    ]


def test_the_counterexample_has_just_what_is_wrong() -> None:
    noise = [
        each
        for number in range(100, 3000, 100)
        for each in (
            reserve(f"p{number}", number, number + 10, cpu=100),
            filtered("q", number, number + 20, cpu=10, n1=""),
            unreserve(f"p{number}", number + 30, number + 40),
        )
    ]
    wrong = [reserve("a", 1501, 1503), reserve("b", 2950, 2960)]

    history = sorted([*cluster(), *noise, *wrong], key=lambda each: each.invoked)
    report = check(history, settings=SearchSettings(hold_lifetime=10_000))

    (found,) = report.counterexamples
    assert found.is_proven
    assert {step.operation.pod for step in found.steps} | {*found.start.holds} == {"a", "b"}
    assert found.wrong.operation.pod == "b"
    assert len(found.steps) <= 3
    assert (
        "600m/1024Mi of 1000m/8192Mi reserved, refusals and sums are not judged; a held"
        in report.text
    )


def test_a_search_that_is_too_much_is_given_up_and_says_so() -> None:
    lost = [reserve(f"lost-{number}", 10, None, cpu=10) for number in range(30)]
    history = sorted([*cluster(), *lost, shown(30, 40, 5, 1)], key=lambda each: each.invoked)

    report = check(history, settings=SearchSettings(most_tries=2000))

    assert not report.is_linearizable
    assert not report.is_decided
    assert "given up" in report.text


def test_nodes_that_are_not_decided_hide_none_that_is_wrong() -> None:
    """After five nodes without a decision the others were not looked at."""
    hard = [f"n{number}" for number in range(1, 7)]
    lost = [
        reserve(f"{node}-{number}", 10, None, cpu=10, node=node)
        for node in hard
        for number in range(30)
    ]
    seen = [
        tell(Op.READ, 30, 40, node="", seen={node: NodeSeen((1000, 8 * GIB), (5, GIB), 1)})
        for node in hard
    ]
    wrong = [reserve("a", 50, 60, node="n7"), reserve("b", 70, 80, node="n7")]

    history = [*cluster(nodes=7), *lost, *seen, *wrong]
    report = check(history, settings=SearchSettings(most_tries=2000))

    assert [each.node for each in report.counterexamples if each.is_proven] == ["n7"]


def test_the_command_prints_and_tells_by_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def written(name: str, *operations: Operation) -> str:
        with Recorder(tmp_path / name) as records:
            for one in [*cluster(), *operations]:
                records.write(one)
        return str(tmp_path / name)

    assert main([written("good", reserve("a", 10, 20))]) == 0
    assert "2 operations on 1 nodes: every answer is explained" in capsys.readouterr().out

    assert main([written("bad", reserve("a", 10, 20), reserve("b", 30, 40))]) == 1
    assert "Node n1: no order of events explains the last answer." in capsys.readouterr().out


def test_a_node_that_never_had_a_capacity_takes_nothing() -> None:
    assert not check([reserve("a", 10, 20)]).is_linearizable
    assert check([tell(reserve("a", 1, 2).op, 10, None, pod="a")]).is_linearizable
