"""Recordings are read line by line, their requests to the byte, and bad lines by number."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from autoscale_enforcer.replay.asked import (
    BindAsked,
    FilterAsked,
    NodesAsked,
    PreemptAsked,
    UnreserveAsked,
    Victims,
    read_asked,
)
from autoscale_enforcer.replay.recording import RecordingError, count_calls, read_calls

TRAFFIC = Path(__file__).parents[2] / "data" / "traffic"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("names.jsonl", {"filter": 109, "prioritize": 108, "bind": 109, "preempt": 4}),
        ("nodes.jsonl", {"filter": 40, "prioritize": 39, "bind": 40, "preempt": 4}),
    ],
)
def test_read_calls_reads_every_recorded_call(name: str, expected: dict[str, int]) -> None:
    assert Counter(call.verb for call in read_calls(TRAFFIC / name)) == expected


def test_read_calls_keeps_the_request_as_it_was_recorded(tmp_path: Path) -> None:
    request = b'{ "PodName":"web\\u003c",  "Node" : "n1","More":[1.50, 1e3]}'
    recording = tmp_path / "odd.jsonl"
    recording.write_bytes(b'\n{"t": 1, "verb":"bind","request": ' + request + b" }\n\n")

    (call,) = read_calls(recording)

    assert call.request == request
    assert call.line == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "line 2: JSON is malformed"),
        ('{"verb": "bind"}', "line 2: Object missing required field `request`"),
        ('{"verb": "fitler", "request": {}}', "line 2: verb 'fitler' is none of filter"),
        ('{"verb": "filter", "request": {}}', "line 2: Pod is missing"),
        ('{"verb": "filter", "request": []}', "line 2: Expected `object`"),
        ('{"verb": "filter", "request": {"NodeNames": "n1"}}', "line 2: NodeNames: Expected"),
        ('{"verb": "bind", "request": {"PodName": "web"}}', "line 2: bind needs PodName and Node"),
    ],
)
def test_count_calls_names_the_line_that_is_no_call(tmp_path: Path, line: str, words: str) -> None:
    recording = tmp_path / "bad.jsonl"
    good = '{"verb": "bind", "request": {"PodName": "web", "Node": "n1"}}'
    recording.write_text(f"{good}\n{line}\n")

    with pytest.raises(RecordingError) as caught:
        count_calls(recording)

    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_count_calls_refuses_a_file_that_would_prove_nothing(tmp_path: Path, text: str) -> None:
    recording = tmp_path / "empty.jsonl"
    recording.write_text(text)

    with pytest.raises(RecordingError, match="holds no calls"):
        count_calls(recording)


def test_read_asked_reads_keys_in_any_case() -> None:
    pod = {"metadata": {"name": "web", "namespace": "default", "uid": "u"}}
    spellings = [
        {"Pod": pod, "Nodes": None, "NodeNames": ["n1"]},
        {"pod": pod, "nodenames": ["n1"]},
    ]

    first, second = (read_asked("filter", json.dumps(body).encode()) for body in spellings)

    assert isinstance(first, FilterAsked)
    assert first == second
    assert (first.pod.uid, first.pod.name) == ("u", "default/web")


def test_read_asked_takes_victims_whole_or_by_uid() -> None:
    pod = {"metadata": {"name": "vip"}}
    meta = {"n1": {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 1}}
    whole = {
        "n1": {"Pods": [{"metadata": {"uid": uid}} for uid in "ab"], "NumPDBViolations": 1},
    }
    bodies = [{"Pod": pod, "NodeNameToMetaVictims": meta}, {"Pod": pod, "NodeNameToVictims": whole}]

    asked = [read_asked("preempt", json.dumps(body).encode()) for body in bodies]

    for one in asked:
        assert isinstance(one, PreemptAsked)
        assert one.offered == {"n1": Victims(frozenset("ab"), 1)}


def test_read_asked_takes_a_pod_by_reference() -> None:
    body = {"Pod": {"Namespace": "default", "Name": "web", "UID": "u"}, "NodeName": "n1"}

    asked = read_asked("unreserve", json.dumps(body).encode())

    assert isinstance(asked, UnreserveAsked)
    assert (asked.pod.uid, asked.pod.name, asked.node) == ("u", "default/web", "n1")


def test_read_asked_tells_pods_without_uid_apart_by_name() -> None:
    asked = read_asked("bind", b'{"PodName": "web", "PodNamespace": "default", "Node": "n1"}')

    assert isinstance(asked, BindAsked)
    assert asked.pod.uid == "default/web"


def test_recorded_nodes_are_offered_whole_where_they_travel() -> None:
    offers = [
        call.asked
        for call in read_calls(TRAFFIC / "nodes.jsonl")
        if isinstance(call.asked, NodesAsked)
    ]

    assert len(offers) == 79
    assert all(asked.nodes is not None and set(asked.nodes) == {*asked.offered} for asked in offers)
