"""Every way in which an answer can be illegal is found, and legal ones are let through."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autoscale_enforcer.replay.asked import read_asked
from autoscale_enforcer.replay.judge import Judge
from autoscale_enforcer.replay.recording import Call
from autoscale_enforcer.replay.verdict import Answer, NoAnswer, Verdict

POD = {"metadata": {"name": "web", "namespace": "default", "uid": "u-web"}, "spec": {}}
NODES = [
    {"metadata": {"name": name, "labels": {"zone": "a"}}, "status": {"allocatable": {"cpu": "4"}}}
    for name in ("n1", "n2", "n3")
]
BY_NAMES = {"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n2", "n3"]}
BY_NODES = {"Pod": POD, "Nodes": {"metadata": {}, "items": NODES}, "NodeNames": None}
PREEMPT = {
    "Pod": POD,
    "NodeNameToVictims": None,
    "NodeNameToMetaVictims": {
        "n1": {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 0},
        "n2": {"Pods": [{"UID": "c"}], "NumPDBViolations": 2},
    },
}
WHOLE_PREEMPT = {
    "Pod": POD,
    "NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"name": "a", "uid": "a"}}]}},
}
BIND = {"PodName": "web", "PodNamespace": "default", "PodUID": "u-web", "Node": "n1"}
RESERVE = {"Pod": POD, "NodeName": "n1"}
UNRESERVE = {"Pod": {"Namespace": "default", "Name": "web", "UID": "u-web"}, "NodeName": "n1"}


def call(verb: str, request: dict[str, Any]) -> Call:
    body = json.dumps(request).encode()
    return Call(line=1, verb=verb, request=body, asked=read_asked(verb, body))


def judged(verb: str, request: dict[str, Any], body: object, *, status: int = 200) -> Verdict:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Judge().judge(call(verb, request), Answer(status=status, body=text))


def names(*passed: str, **rest: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "Nodes": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    return {**empty, "NodeNames": list(passed), **rest}


def whole(*passed: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {**names(), "NodeNames": None, "Nodes": {"metadata": {}, "items": list(passed)}, **rest}


def scores(**values: object) -> list[dict[str, Any]]:
    return [{"Host": host, "Score": score} for host, score in values.items()]


def victims(**by_node: object) -> dict[str, Any]:
    return {"NodeNameToMetaVictims": by_node}


CHANGED = {**NODES[0], "status": {"allocatable": {"cpu": "5"}}}
RETYPED = {**NODES[0], "status": {"allocatable": {"cpu": 4}}}
GOOD = {"Pods": [{"UID": "a"}], "NumPDBViolations": 0}


@pytest.mark.parametrize(
    ("verb", "request_body", "body"),
    [
        ("filter", BY_NAMES, names("n1", "n2", "n3")),
        ("filter", BY_NAMES, names("n2", FailedNodes={"n1": "full", "n3": "full"})),
        ("filter", BY_NAMES, {"FailedAndUnresolvableNodes": dict.fromkeys(["n1", "n2", "n3"], "")}),
        ("filter", BY_NODES, whole(*NODES)),
        ("filter", BY_NODES, whole(NODES[2], FailedNodes={"n1": "full", "n2": "full"})),
        ("filter", BY_NODES, whole(*(dict(reversed(node.items())) for node in NODES))),
        ("prioritize", BY_NAMES, scores(n3=0, n1=10, n2=5)),
        ("prioritize", BY_NODES, scores(n1=1, n2=1, n3=1)),
        ("preempt", PREEMPT, victims()),
        ("preempt", PREEMPT, victims(n1=GOOD)),
        ("preempt", PREEMPT, victims(n2={"Pods": [{"UID": "c"}], "NumPDBViolations": 2})),
        ("preempt", WHOLE_PREEMPT, victims(n1=GOOD)),
        ("bind", BIND, {"Error": ""}),
        ("bind", BIND, {}),
        ("reserve", RESERVE, {"Code": "Success", "Reasons": []}),
        ("reserve", RESERVE, {"Code": "Unschedulable", "Reasons": ["full"]}),
        ("unreserve", UNRESERVE, {"Code": "Success", "Reasons": None}),
    ],
)
def test_judge_lets_a_legal_answer_through(
    verb: str, request_body: dict[str, Any], body: object
) -> None:
    assert judged(verb, request_body, body).disagreements == []


@pytest.mark.parametrize(
    ("request_body", "body", "words"),
    [
        (BY_NAMES, names("n1", "n1", "n2", "n3"), "passed more than once: n1"),
        (BY_NAMES, names("n1", "n2", "n3", "n9"), "answered but not offered: n9"),
        (BY_NAMES, names("n1", FailedNodes=dict.fromkeys(["n1", "n2", "n3"], "")), "one list: n1"),
        (
            BY_NAMES,
            names(
                FailedNodes=dict.fromkeys(["n1", "n2"], ""),
                FailedAndUnresolvableNodes=dict.fromkeys(["n2", "n3"], ""),
            ),
            "in more than one list: n2",
        ),
        (BY_NAMES, names("n1", "n2", FailedNodes={"n3": "", "n9": ""}), "not offered: n9"),
        (BY_NAMES, names("n1"), "offered but in no list: n2, n3"),
        (BY_NAMES, {}, "offered but in no list: n1, n2, n3"),
        (BY_NAMES, whole(*NODES), "asked with NodeNames, answered with Nodes"),
        (BY_NODES, names("n1", "n2", "n3"), "asked with Nodes, answered with NodeNames"),
        (BY_NODES, whole(CHANGED, *NODES[1:]), "Node objects came back changed: n1"),
        (BY_NODES, whole(RETYPED, *NODES[1:]), "Node objects came back changed: n1"),
        (BY_NODES, whole(NODES[0], *NODES), "passed more than once: n1"),
        (BY_NODES, whole({"metadata": {}}, *NODES), "a returned Node cannot be read"),
        (BY_NAMES, names(Error="no Redis\nat all"), "answered with an Error: no Redis at all"),
        (BY_NAMES, names("n1", FailedNodes=["n2"]), "cannot be read: Expected"),
    ],
)
def test_judge_finds_a_filter_answer_illegal(
    request_body: dict[str, Any], body: object, words: str
) -> None:
    found = judged("filter", request_body, body).disagreements

    assert len(found) == 1, found
    assert words in found[0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (scores(n1=11, n2=1, n3=1), "no whole number from 0 to 10: n1=11"),
        (scores(n1=-1, n2=1, n3=1), "n1=-1"),
        (scores(n1=5.0, n2=1, n3=1), "n1=5.0"),
        (scores(n1=True, n2=1, n3=1), "n1=True"),
        (scores(n1="5", n2=1, n3=1), "n1='5'"),
        ([*scores(n2=1, n3=1), {"Host": "n1"}], "n1=None"),
        (scores(n1=1, n2=1), "offered but without a score: n3"),
        ([*scores(n1=1, n2=1, n3=1), *scores(n1=1)], "scored more than once: n1"),
        (scores(n1=1, n2=1, n3=1, n9=1), "scored but not offered: n9"),
        (None, "cannot be read: Expected `array`, got `null`"),
    ],
)
def test_judge_finds_a_prioritize_answer_illegal(body: object, words: str) -> None:
    found = judged("prioritize", BY_NAMES, body).disagreements

    assert len(found) == 1, found
    assert words in found[0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (victims(n9=GOOD), "answered but not offered: n9"),
        (victims(n1={"Pods": [], "NumPDBViolations": 0}), "no victims on n1"),
        (victims(n1={"Pods": None, "NumPDBViolations": 0}), "no victims on n1"),
        (victims(n1=None), "no victims on n1"),
        (victims(n1={"Pods": [{"UID": "c"}]}), "victims that were not offered: c on n1"),
        (victims(n1={"Pods": [{"UID": "a"}, {"UID": "a"}]}), "victims named twice: a on n1"),
        (victims(n2={"Pods": [{"UID": "c"}], "NumPDBViolations": 0}), "changed: 2 became 0 on n2"),
        ({"NodeNameToVictims": {}}, "answered without NodeNameToMetaVictims"),
    ],
)
def test_judge_finds_a_preempt_answer_illegal(body: object, words: str) -> None:
    found = judged("preempt", PREEMPT, body).disagreements

    assert len(found) == 1, found
    assert words in found[0]


@pytest.mark.parametrize(
    ("verb", "request_body", "body", "words"),
    [
        ("bind", BIND, {"Error": "no room"}, "refused on n1: no room"),
        ("reserve", RESERVE, {"Code": "Error", "Reasons": ["no Redis"]}, "on n1: no Redis"),
        ("reserve", RESERVE, {"Code": "success"}, "unknown Code 'success'"),
        ("reserve", RESERVE, {}, "missing required field `Code`"),
        ("unreserve", UNRESERVE, {"Code": "Unschedulable"}, "refused to give back on n1"),
    ],
)
def test_judge_finds_trouble_with_one_pod(
    verb: str, request_body: dict[str, Any], body: object, words: str
) -> None:
    verdict = judged(verb, request_body, body)

    assert len(verdict.disagreements) == 1, verdict
    assert words in verdict.disagreements[0]


@pytest.mark.parametrize(
    ("verb", "request_body"),
    [
        ("filter", BY_NAMES),
        ("prioritize", BY_NAMES),
        ("preempt", PREEMPT),
        ("bind", BIND),
        ("reserve", RESERVE),
        ("unreserve", UNRESERVE),
    ],
)
@pytest.mark.parametrize(
    ("status", "body", "words", "refused"),
    [
        (500, b"oh\x1b[31m no", "answered HTTP 500: oh [31m no", True),
        (404, b"", "answered HTTP 404", True),
        (200, b"<html>", "the answer cannot be read", False),
        (200, b"", "the answer cannot be read", False),
        (200, b"\xff\xfe", "the answer cannot be read", False),
        (200, b"[" * 100_000, "the answer cannot be read", False),
    ],
    ids=["500", "404", "not JSON", "empty", "not UTF-8", "deep"],
)
def test_judge_reports_an_answer_it_cannot_read(
    verb: str, request_body: dict[str, Any], status: int, body: bytes, words: str, refused: bool
) -> None:
    verdict = judged(verb, request_body, body, status=status)

    assert len(verdict.disagreements) == 1
    assert words in verdict.disagreements[0]
    assert verdict.refused is refused


@pytest.mark.parametrize(
    ("verb", "request_body", "body", "refused"),
    [
        ("filter", BY_NAMES, names("n1", FailedNodes={"n2": "", "n3": ""}), False),
        ("filter", BY_NAMES, names(FailedNodes=dict.fromkeys(["n1", "n2", "n3"], "")), True),
        ("filter", BY_NAMES, names(Error="no Redis"), True),
        ("preempt", PREEMPT, victims(), False),
        ("bind", BIND, {"Error": ""}, False),
        ("bind", BIND, {"Error": "no room"}, True),
        ("reserve", RESERVE, {"Code": "Success"}, False),
        ("reserve", RESERVE, {"Code": "UnschedulableAndUnresolvable"}, True),
    ],
)
def test_judge_tells_what_was_refused(
    verb: str, request_body: dict[str, Any], body: object, refused: bool
) -> None:
    assert judged(verb, request_body, body).refused is refused


def bind_after(*filter_answers: Answer | NoAnswer) -> Verdict:
    judge = Judge()
    for answer in filter_answers:
        judge.judge(call("filter", BY_NAMES), answer)
    return judge.judge(call("bind", BIND), Answer(status=200, body=b"{}"))


def passed(*nodes: str) -> Answer:
    failed = dict.fromkeys({"n1", "n2", "n3"} - set(nodes), "")
    return Answer(status=200, body=json.dumps(names(*nodes, FailedNodes=failed)).encode())


@pytest.mark.parametrize(
    ("answers", "is_legal"),
    [
        ([], True),
        ([passed("n1", "n2")], True),
        ([passed("n2")], False),
        ([passed("n2"), passed("n1")], True),
        ([passed("n1"), passed("n2")], False),
        ([passed("n1"), NoAnswer("gone")], False),
        ([passed("n1"), Answer(status=503, body=b"")], False),
    ],
    ids=["no filter", "passed", "not", "passed later", "no longer", "no answer", "no result"],
)
def test_judge_compares_a_bind_with_the_last_filter(
    answers: list[Answer | NoAnswer], is_legal: bool
) -> None:
    found = bind_after(*answers).disagreements

    assert ("was not passed" in "".join(found)) is not is_legal


def test_judge_names_a_few_of_many_nodes_only() -> None:
    many = {**BY_NAMES, "NodeNames": [f"n{number:04}" for number in range(5000)]}

    found = judged("filter", many, {}).disagreements

    assert found == ["offered but in no list: n0000, n0001, n0002 and 4997 more"]
