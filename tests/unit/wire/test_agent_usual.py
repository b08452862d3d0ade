"""A request that is read in one pass is read as with all care, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscale_enforcer.errors import WireError
from autoscale_enforcer.wire.agent import decode_agent_request, read_any
from autoscale_enforcer.wire.agent_request import AgentRequest
from autoscale_enforcer.wire.agent_usual import read_usual

AMOUNT = {"vCPUs": "250m", "mem": "1Gi"}
USUAL: dict[str, Any] = {
    "protoVersion": 7,
    "pod": {"namespace": "default", "name": "vm-0"},
    "computeUnit": AMOUNT,
    "resources": {"vCPUs": 2, "mem": 1024},
    "lastPermit": AMOUNT,
    "metrics": {"loadAvg1M": 0.3},
}


def with_care(body: bytes) -> AgentRequest | None:
    try:
        return read_any(body)
    except WireError:
        return None


@pytest.mark.parametrize("version", [6, 7])
@pytest.mark.parametrize("last", [AMOUNT, {"vCPUs": 0, "mem": 0}, None])
@pytest.mark.parametrize("metrics", [{"loadAvg1M": 0.3}, {}, None])
def test_what_current_agents_write_is_read_in_one_pass(
    version: int, last: Any, metrics: Any
) -> None:
    fields = {**USUAL, "protoVersion": version, "lastPermit": last, "metrics": metrics}
    body = json.dumps(fields).encode()

    assert read_usual(body) == read_any(body)
    assert read_usual(body) is not None


VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [
        "250m",
        "1Gi",
        "0",
        " 1 ",
        "",
        "-1",
        "1e3",
        0,
        1,
        -1,
        2.0,
        0.5,
        1e30,
        10**30,
        True,
        None,
        [],
        {},
    ]
)
AMOUNTS = st.one_of(
    st.just(AMOUNT),
    VALUES,
    st.fixed_dictionaries(
        {}, optional={"vCPUs": VALUES, "mem": VALUES, "VCPUS": VALUES, "x": VALUES}
    ),
)
NAMES = st.sampled_from(["default", "a/b", "", "-", "a b", "x" * 254, "\N{SNOWMAN}", 1, None])
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "protoVersion": st.sampled_from([6, 7, 5, 1, 0, 8, 7.0, "7", None, True]),
        "pod": st.fixed_dictionaries(
            {}, optional={"namespace": NAMES, "name": NAMES, "uid": NAMES}
        ),
        "computeUnit": AMOUNTS,
        "resources": AMOUNTS,
        "lastPermit": AMOUNTS,
        "metrics": st.sampled_from([None, {}, {"a": {"b": [1]}}, [], 1]),
        "Pod": st.just({}),
        "unknown": VALUES,
    },
)


@given(changed=REQUESTS, left_out=st.sets(st.sampled_from(sorted(USUAL)), max_size=1))
def test_whatever_is_read_in_one_pass_is_read_the_same_with_care(
    changed: dict[str, Any], left_out: set[str]
) -> None:
    fields = {name: value for name, value in {**USUAL, **changed}.items() if name not in left_out}
    body = json.dumps(fields).encode()

    assert read_usual(body) in (None, with_care(body))


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"[" * 10_000, json.dumps(USUAL).encode() + b"x"]
)
def test_what_is_no_request_is_refused_with_words(body: bytes) -> None:
    with pytest.raises(WireError):
        decode_agent_request(body)
