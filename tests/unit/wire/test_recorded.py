"""What real schedulers and agents sent, read and written back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoscale_enforcer.errors import WireError
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.wire.agent import decode_agent_request, encode_agent_answer
from autoscale_enforcer.wire.extender import (
    FilterRequest,
    decode_bind_request,
    decode_filter_request,
    encode_filter_answer,
)
from autoscale_enforcer.wire.protocol import effective_factor
from autoscale_enforcer.wire.victims import decode_preempt_request, encode_preempt_answer

TRAFFIC = Path(__file__).parents[2] / "data" / "traffic"
GIB = 1 << 30

Line = dict[str, Any]


def lines(name: str) -> list[Line]:
    with (TRAFFIC / name).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def requests(name: str, *verbs: str) -> list[bytes]:
    """The bodies, spaced as Go does not: bytes that are kept must not depend on it."""
    return [json.dumps(line["request"]).encode() for line in lines(name) if line["verb"] in verbs]


def lower_keys(body: bytes) -> bytes:
    return json.dumps({key.lower(): value for key, value in json.loads(body).items()}).encode()


RECORDINGS = ["names.jsonl", "nodes.jsonl"]


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_filters_are_read_alike_in_lower_case(name: str) -> None:
    bodies = requests(name, "filter", "prioritize")

    assert len(bodies) > 70
    for body in bodies:
        request = decode_filter_request(body)
        assert request.pod.fact is not None
        assert request.nodes.names
        assert facts(decode_filter_request(lower_keys(body))) == facts(request)


def facts(request: FilterRequest) -> tuple[Any, ...]:
    whole = request.nodes.whole
    raw = None if whole is None else {name: bytes(node) for name, node in whole.items()}
    return request.pod, request.nodes.names, raw


def test_recorded_nodes_travel_back_byte_for_byte() -> None:
    for body in requests("nodes.jsonl", "filter"):
        offered = decode_filter_request(body).nodes

        answer = encode_filter_answer(offered, passed=offered.names, failed={}, unresolvable={})

        sent = body[body.index(b'"items": [') + 10 : body.rindex(b'}, "NodeNames"')]
        kept = answer[answer.index(b'"items":[') + 9 : answer.index(b'},"NodeNames"')]
        # Between the Nodes Python put a comma and a space, we put a comma.
        assert kept.replace(b'},{"metadata": {"name"', b'}, {"metadata": {"name"') == sent


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_binds_are_read_alike_in_lower_case(name: str) -> None:
    bodies = requests(name, "bind")

    assert len(bodies) >= 40
    for body in bodies:
        request = decode_bind_request(body)
        sent = json.loads(body)
        assert request.pod.full_name == f"{sent['PodNamespace']}/{sent['PodName']}"
        assert (request.pod.uid, request.node) == (sent["PodUID"], sent["Node"])
        assert decode_bind_request(lower_keys(body)) == request


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_preemptions_are_read_and_answered(name: str) -> None:
    bodies = requests(name, "preempt")

    assert len(bodies) == 4
    for body in bodies:
        request = decode_preempt_request(body)
        assert decode_preempt_request(lower_keys(body)) == request
        answer = json.loads(encode_preempt_answer(request.victims))
        assert answer == {"NodeNameToMetaVictims": meta_victims(json.loads(body))}


def meta_victims(sent: Line) -> Line:
    if sent["NodeNameToMetaVictims"]:
        meta: Line = sent["NodeNameToMetaVictims"]
        return meta
    return {
        node: victims | {"Pods": [{"UID": pod["metadata"]["uid"]} for pod in victims["Pods"]]}
        for node, victims in sent["NodeNameToVictims"].items()
    }


KNOWN_TO_THE_LEDGER_ONLY = {"a pod nobody knows", "a pod that is no VM"}
AGENT = lines("agent.jsonl") if (TRAFFIC / "agent.jsonl").exists() else []


def test_the_table_of_agent_requests_is_there() -> None:
    assert len(AGENT) == 20


@pytest.mark.parametrize(
    "line", AGENT, ids=lambda line: f"{line['protocol']} {line.get('why', '')}"
)
def test_recorded_agent_requests(line: Line) -> None:
    body = json.dumps(line["request"]).encode()
    expected = line["answer"]
    if expected["status"] == 400 and line.get("why") not in KNOWN_TO_THE_LEDGER_ONLY:
        with pytest.raises(WireError):
            decode_agent_request(body)
        return

    request = decode_agent_request(body)

    assert request.version.label == line["protocol"]
    if expected["status"] == 200:
        check_answer(expected, told(line))


def told(line: Line) -> Line:
    """What a VM with slots of 1 GiB is answered when all it asks is granted."""
    request = decode_agent_request(json.dumps(line["request"]).encode())
    factor = effective_factor(
        request.version, requested=request.compute_unit, configured=Resources(250, GIB)
    )
    permit = request.wanted(GIB)
    if "nodeLeft" in line.get("state", {}):
        # The ledger's part: 1 CPU held, 2750m left, granted in steps of the factor.
        permit = Resources(1000 + 2750 // factor.cpu * factor.cpu, permit.mem)
    answer = encode_agent_answer(request.version, permit, slot_bytes=GIB, unit=factor)
    decoded: Line = json.loads(answer)
    return decoded


def check_answer(expected: Line, answer: Line) -> None:
    if "keys" in expected:
        assert sorted(answer) == sorted(expected["keys"])
    if "permitMem" in expected:
        kind = int if expected["permitMem"] == "slots" else str
        assert isinstance(answer["permit"]["mem"], kind)
    for field in ("permit", "resourceUnit"):
        assert answer.get(field) == expected.get(field, answer.get(field))
