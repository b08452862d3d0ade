"""A history says what clients saw, and survives how they end."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from autoscale_enforcer.model.resources import Resources
from tests.history.record import CLUSTER, NodeSeen, Op, Operation, Outcome, Recorder, read_history


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def recorder(path: Path, *, start: int = 1, durable: bool = False) -> Recorder:
    """Its clock advances by one at each look."""
    return Recorder(path, durable=durable, clock=itertools.count(start).__next__)


def test_an_operation_is_read_as_it_was_recorded(path: Path) -> None:
    with recorder(path, durable=True) as records:
        asked = records.invoke(Op.REQUEST, client=3, pod="u1", node="n1", asked=(500, 7))
        asked.done(replica="r2", told=Resources(250, 7))

    assert read_history([path]) == [
        Operation(
            op=Op.REQUEST,
            client=3,
            id=1,
            invoked=1,
            answered=2,
            outcome=Outcome.DONE,
            pod="u1",
            node="n1",
            asked=(500, 7),
            told=(250, 7),
            replica="r2",
            durable=True,
        )
    ]


def test_a_read_and_a_refusal_keep_what_was_seen(path: Path) -> None:
    shown = {"n1": NodeSeen((4000, 8), (250, 7), 1, unsettled=True)}
    with recorder(path) as records:
        records.invoke(Op.FILTER, client=1, pod="u1").saw({"n1": "", "n2": "no room"})
        records.invoke(Op.READ, client=1).saw(shown)
        records.invoke(Op.BIND, client=1, pod="u1").refused("no room", replica="r1")

    filtered, read, refused = read_history([path])
    assert filtered.seen == {"n1": "", "n2": "no room"}
    assert read.seen == shown
    assert (refused.outcome, refused.reason, refused.answered) == (Outcome.REFUSED, "no room", 6)


def test_what_has_no_answer_has_no_end(path: Path) -> None:
    with recorder(path) as records:
        records.invoke(Op.RESERVE, client=1, pod="u1").unknown("time-out")
        records.invoke(Op.RESERVE, client=2, pod="u2")  # still going on when all ends
        records.known(Op.NODE, node="n1", asked=(4000, 8))

    timed_out, cut_off, fact = read_history([path])
    assert (timed_out.outcome, timed_out.answered) == (Outcome.UNKNOWN, None)
    assert (cut_off.outcome, cut_off.answered, cut_off.pod) == (Outcome.UNKNOWN, None, "u2")
    assert (fact.client, fact.outcome) == (CLUSTER, Outcome.DONE)


def test_a_call_ends_once(path: Path) -> None:
    with recorder(path) as records:
        call = records.invoke(Op.RESERVE, client=1, pod="u1")
        call.done()
        call.unknown("too late")

        assert records.written == 1
    assert len(read_history([path])) == 1


def test_files_of_several_processes_are_one_history_in_the_order_of_calls(tmp_path: Path) -> None:
    for name, start in (("a", 5), ("b", 1)):
        with recorder(tmp_path / name, start=start) as records:
            records.invoke(Op.UNRESERVE, client=start).done()

    history = read_history([tmp_path / "a", tmp_path / "b"])

    assert [each.invoked for each in history] == [1, 5]


def test_a_line_that_was_cut_off_is_left_out_and_a_broken_one_is_named(path: Path) -> None:
    with recorder(path) as records:
        records.invoke(Op.UNRESERVE, client=1).done()
    whole = path.read_bytes()

    path.write_bytes(whole + whole[:20])
    assert len(read_history([path])) == 1

    path.write_bytes(whole + b'{"op":"dance"}\n')
    with pytest.raises(ValueError, match=r"history.jsonl:2: .*dance"):
        read_history([path])
