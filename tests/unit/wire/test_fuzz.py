"""Whatever comes in, a decoder gives a value or raises WireError."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscale_enforcer.errors import WireError
from autoscale_enforcer.wire.agent import decode_agent_request
from autoscale_enforcer.wire.extender import (
    decode_bind_request,
    decode_filter_request,
    decode_reserve_request,
    decode_unreserve_request,
)
from autoscale_enforcer.wire.victims import decode_preempt_request


def filter_and_read_nodes(body: bytes) -> None:
    nodes = decode_filter_request(body).nodes
    for name in nodes.names:
        nodes.document(name)


def agent_and_resolve(body: bytes) -> None:
    request = decode_agent_request(body)
    request.wanted(1 << 30)
    request.last_permit(1 << 30)


DECODERS: list[Callable[[bytes], object]] = [
    filter_and_read_nodes,
    decode_preempt_request,
    decode_bind_request,
    decode_reserve_request,
    decode_unreserve_request,
    agent_and_resolve,
]

METADATA = {
    "namespace": "default",
    "name": "vm-0",
    "uid": "u1",
    "labels": {"autoscaling.neon.tech/enabled": "true"},
    "annotations": {"vm.neon.tech/resources": '{"cpus":{"min":1,"use":2,"max":3}}'},
    "ownerReferences": [{"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "name": "vm"}],
}
POD = {
    "metadata": METADATA,
    "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        "initContainers": None,
        "overhead": {"cpu": 1},
    },
    "status": {"phase": "Pending"},
}
NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}}
GOOD: list[dict[str, Any]] = [
    {"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n2"]},
    {"Pod": POD, "Nodes": {"metadata": {}, "items": [NODE]}, "NodeNames": None},
    {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}},
    {"Pod": POD, "NodeNameToVictims": {"n1": {"Pods": [POD], "NumPDBViolations": 0}}},
    {"PodName": "vm-0", "PodNamespace": "default", "PodUID": "u1", "Node": "n1"},
    {"Pod": POD, "NodeName": "n1"},
    {"Pod": {"Namespace": "default", "Name": "vm-0", "UID": "u1"}, "NodeName": "n1"},
    *(
        {
            "protoVersion": version,
            "pod": {"name": "vm-0", "namespace": "default"},
            "computeUnit": {"vCPUs": "250m", "mem": "1Gi"},
            "resources": {"vCPUs": 1, "mem": 4 if version < 6 else "4Gi"},
            "lastPermit": {"vCPUs": 1, "mem": 4},
            "metrics": {"loadAvg1M": 0.5},
        }
        for version in (1, 5, 7)
    ),
]

NUMBERS = [0, -1, 1.5, 1e308, 10**19, 10**400, True]
LEAVES = st.one_of(
    st.none(), st.text(max_size=5), st.integers(), st.sampled_from([*NUMBERS, "1e999999999", "\0"])
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def accepts(body: bytes) -> bool:
    """True where a decoder took it; whatever is not a WireError fails the test."""
    taken = False
    for decode in DECODERS:
        with contextlib.suppress(WireError):
            decode(body)
            taken = True
    return taken


def altered(value: Any, draw: Callable[[Any], Any]) -> Any:
    """The value with, here and there, a key in another case or any JSON in a value's place."""
    what = draw(st.integers(0, 30))
    if what == 0:
        return draw(JSON)
    if isinstance(value, list):
        return [altered(item, draw) for item in value] * (2 if what == 1 else 1)
    if isinstance(value, dict):
        recase = str.swapcase if what == 1 else str
        return {recase(key): altered(inner, draw) for key, inner in value.items()}
    return value


@pytest.mark.parametrize("good", GOOD, ids=",".join)
def test_what_is_altered_below_is_good(good: dict[str, Any]) -> None:
    assert accepts(json.dumps(good).encode())


@given(st.data())
def test_altered_requests(data: st.DataObject) -> None:
    accepts(json.dumps(altered(data.draw(st.sampled_from(GOOD)), data.draw)).encode())


@given(st.sampled_from(GOOD), st.data())
def test_flipped_bytes(good: dict[str, Any], data: st.DataObject) -> None:
    body = bytearray(json.dumps(good).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))

    accepts(bytes(body))


@given(JSON)
def test_any_json(value: Any) -> None:
    accepts(json.dumps(value).encode())


@given(st.binary())
def test_any_bytes(body: bytes) -> None:
    accepts(body)


@pytest.mark.parametrize("depth", [10, 500, 1000, 5000, 200_000])
@pytest.mark.parametrize("opened", [b"[", b'{"Pod":', b'{"a":'])
def test_deep_nesting(depth: int, opened: bytes) -> None:
    closed = (b"]" if opened == b"[" else b"}") * depth
    inner = opened * depth + b"1" + closed

    accepts(inner)
    for key in (b"Pod", b"pod", b"Nodes", b"NodeNameToVictims", b"resources", b"metrics"):
        accepts(b'{"protoVersion":7,"NodeNames":["a"],"%s":%s}' % (key, inner))


@pytest.mark.parametrize("digits", [20, 400, 5000, 100_000])
def test_huge_numbers(digits: int) -> None:
    number = b"9" * digits
    for key in (b"protoVersion", b"NumPDBViolations", b"vCPUs", b"mem", b"cpu", b"NodeName"):
        accepts(b'{"%s":%s}' % (key, number))
        accepts(
            b'{"protoVersion":7,"pod":{"name":"a","namespace":"b"},"resources":{"%s":%s}}'
            % (key, number)
        )
