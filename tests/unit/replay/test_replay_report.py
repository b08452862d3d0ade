"""Counting, and how the counts are shown."""

from __future__ import annotations

import pytest

from autoscale_enforcer.errors import ServiceError
from autoscale_enforcer.replay.asked import BindAsked, Pod
from autoscale_enforcer.replay.player import extender_url
from autoscale_enforcer.replay.recording import Call
from autoscale_enforcer.replay.report import document, table
from autoscale_enforcer.replay.tally import KEPT_DISAGREEMENTS, Counts, Tally
from autoscale_enforcer.replay.verdict import Answer, NoAnswer, Verdict

LEGAL = Verdict(disagreements=[])


def bind(line: int) -> Call:
    asked = BindAsked(Pod(uid=f"u{line}", name=f"default/web-{line}"), "n1")
    return Call(line=line, verb="bind", request=b"{}", asked=asked)


def answer(replica: str, milliseconds: float) -> Answer:
    return Answer(status=200, body=b"{}", replica=replica, seconds=milliseconds / 1000)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.001, 1.0)]
)
def test_milliseconds_at_is_the_nearest_rank(share: float, expected: float) -> None:
    counts = Counts()
    for milliseconds in range(100, 0, -1):
        counts.add(answer("a", milliseconds), refused=False)

    assert counts.milliseconds_at(share) == pytest.approx(expected)


def test_table_shows_each_verb_and_each_disagreement() -> None:
    tally = Tally()
    tally.add(bind(1), answer("b", 1.25), LEGAL)
    tally.add(bind(2), answer("a", 20), Verdict(disagreements=["refused on n1"], refused=True))
    tally.add(bind(3), NoAnswer("gone"), Verdict(disagreements=["no answer: gone"]))

    assert table(tally).splitlines() == [
        "verb  calls  refused  p50 ms  p99 ms  replicas that answered",
        "bind      3        1     1.2    20.0  2: a, b",
        "all       3        1     1.2    20.0  2: a, b",
        "",
        "Disagreements: 2",
        "  line 2  bind  default/web-2  refused on n1",
        "  line 3  bind  default/web-3  no answer: gone",
    ]


def test_table_says_that_nothing_was_wrong() -> None:
    tally = Tally()
    tally.add(bind(1), answer("", 1), LEGAL)

    assert table(tally).endswith("No disagreement: every answer was legal.")


def test_disagreements_are_capped_with_a_count() -> None:
    tally = Tally()
    for line in range(KEPT_DISAGREEMENTS + 7):
        tally.add(bind(line), answer("a", 1), Verdict(disagreements=["wrong"]))

    assert table(tally).endswith("… and 7 more")
    assert len(document(tally)["disagreements"]) == KEPT_DISAGREEMENTS
    assert document(tally)["disagreementCount"] == KEPT_DISAGREEMENTS + 7


def test_document_holds_what_the_table_holds() -> None:
    tally = Tally()
    tally.add(bind(4), answer("a", 2), Verdict(disagreements=["wrong"], refused=True))
    counts = {"calls": 1, "refused": 1, "p50Ms": 2.0, "p99Ms": 2.0, "replicas": {"a": 1}}

    assert document(tally) == {
        "verbs": {"bind": counts},
        "all": counts,
        "disagreementCount": 1,
        "disagreements": [{"line": 4, "verb": "bind", "pod": "default/web-4", "text": "wrong"}],
        "unreachable": None,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://127.0.0.1:10298", "http://127.0.0.1:10298/extender"),
        ("http://127.0.0.1:10298/", "http://127.0.0.1:10298/extender"),
        ("http://127.0.0.1:10298/extender/", "http://127.0.0.1:10298/extender"),
        ("https://[::1]:1/other/path", "https://[::1]:1/other/path"),
    ],
)
def test_extender_url_adds_the_path_where_there_is_none(text: str, expected: str) -> None:
    assert extender_url(text) == expected


@pytest.mark.parametrize(
    "text", ["", "localhost:10298", "ftp://h", "http://", "http://[::1", "http://h:x", "http://h?a"]
)
def test_extender_url_refuses_what_is_no_address(text: str) -> None:
    with pytest.raises(ServiceError, match="no address like"):
        extender_url(text)
