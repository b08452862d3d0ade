"""What a run is worth: wrong answers void it, limits are judged by the median of the rounds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autoscale_enforcer.ledger.verify import Books
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import NodeRow, PodRow, Stage
from bench.agents import asked, judge
from bench.figures import Figure, Rounds, WrongAnswer
from bench.judge import judge_filter
from bench.load import Load, request
from bench.scheduling import same_answer

BOOKS = Books(
    # The sums that a script keeps are wrong on purpose: they are not what is judged by.
    nodes={NodeName(n): NodeRow(cap_cpu=4000, cap_mem=100, reserved_cpu=1) for n in ("a", "b")},
    pods={
        PodUid("1"): PodRow(name="d/1", node="a", stage=Stage.BOUND, cpu=3000, mem=10),
        PodUid("2"): PodRow(name="d/2", node="a", stage=Stage.HELD, cpu=2000, over_cpu=2000),
        PodUid("3"): PodRow(name="d/3", node="b", stage=Stage.PENDING, cpu=4000),
    },
)


def answer(*names: str, **more: Any) -> bytes:
    return json.dumps({"NodeNames": names, "FailedNodes": {}, "Error": ""} | more).encode()


def test_filter_is_right_where_it_lets_through_what_the_pods_rows_leave_room_for() -> None:
    judge_filter(BOOKS, ["a", "b"], Resources(1, 1), answer("b"))
    judge_filter(BOOKS, ["a"], Resources(0, 90), answer("a"))


@pytest.mark.parametrize("told", [answer("a", "b"), answer(), answer("a")])
def test_filter_that_lets_through_others_is_wrong(told: bytes) -> None:
    with pytest.raises(WrongAnswer, match="wrong about"):
        judge_filter(BOOKS, ["a", "b"], Resources(1, 1), told)


def test_filter_that_answers_an_error_is_wrong() -> None:
    with pytest.raises(WrongAnswer, match="away"):
        judge_filter(BOOKS, ["a"], Resources(1, 1), answer(Error="Redis is away"))


def test_names_and_whole_nodes_are_compared_alike() -> None:
    whole = json.dumps({"Nodes": {"items": [{"metadata": {"name": "a"}}]}}).encode()

    same_answer(whole, answer("a"))
    with pytest.raises(WrongAnswer, match="'b'"):
        same_answer(whole, answer("a", "b"))


def load(permit: dict[str, Any], *, refused: int = 0) -> Load:
    sent = request("http://h/", json.dumps(asked(1, 3, 2)).encode())
    got = b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps({"permit": permit}).encode()
    return Load(1.0, [0.1], refused, [(sent, got)])


@pytest.mark.parametrize("cpu", ["750m", 0.75])
@pytest.mark.parametrize("mem", ["3Gi", 3 << 30, str(3 << 30)])
def test_permit_of_all_that_was_asked_for_is_right(cpu: object, mem: object) -> None:
    judge(load({"vCPUs": cpu, "mem": mem}))


@pytest.mark.parametrize("wrong", [{"vCPUs": "500m"}, {"mem": "2Gi"}])
def test_other_permit_is_wrong(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongAnswer, match="there was room"):
        judge(load({"vCPUs": "750m", "mem": "3Gi"} | wrong))


def test_refused_request_is_wrong() -> None:
    with pytest.raises(WrongAnswer, match="1 of 1"):
        judge(load({"vCPUs": "750m", "mem": "3Gi"}, refused=1))


def test_figure_is_the_median_of_the_rounds_ratios() -> None:
    figure = Figure(name="x", ours=[1, 9, 4], reference=[1, 3, 2], bound="at most", limit=2)

    assert figure.value == 2
    assert figure.is_met
    assert "2 (at most 2)  met" in str(figure)
    assert "rounds 1 to 3" in str(figure)


@pytest.mark.parametrize(
    ("bound", "limit", "is_met"),
    [("at most", 1.9, False), ("at least", 2.1, False), ("at least", 2, True), ("shown", 0, True)],
)
def test_limit_is_met_on_its_own_side(bound: Any, limit: float, *, is_met: bool) -> None:
    figure = Figure(name="x", ours=[2], reference=None, bound=bound, limit=limit)

    assert figure.is_met is is_met
    assert ("MISSED" in str(figure)) is not is_met


def test_rounds_take_turns_and_every_other_one_goes_backwards() -> None:
    order: list[str] = []

    def of(name: str, *values: float) -> list[float]:
        order.append(name)
        return list(values)

    rounds = Rounds([])
    first, second = rounds.run(2, lambda: of("a", 1, 2), lambda: of("b", 3))

    assert order == ["a", "b", "b", "a"]
    assert (first, second) == ([[1, 1], [2, 2]], [[3, 3]])
    assert len(rounds.noise) == 2
