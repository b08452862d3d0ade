"""Whatever a client sends: no 5xx but 503, no traceback, and a refused request changes nothing."""

from __future__ import annotations

import asyncio
import copy
import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscale_enforcer.config.settings import LimitSettings, parse_compute_unit
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, Json, pod_json, runs_vm, vm_resources
from tests.support.replica import UNIT, Door, Replica, Reply, bind_args

EXAMPLES = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
WRITING = {"bind", "reserve", "unreserve", "agent"}
"""What may change the ledger, where it is answered 200."""

VM = pod_json("vm-2", metadata=runs_vm("1", 1))
VALID: dict[str, Json] = {
    "filter": {"Pod": pod_json("u1"), "NodeNames": ["n1", "n2"]},
    "prioritize": {"Pod": VM, "Nodes": {"items": [{"metadata": {"name": "n1"}}]}},
    "preempt": {
        "Pod": pod_json("u1"),
        "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "vm-1"}], "NumPDBViolations": 0}},
    },
    "bind": bind_args(pod_json("u2")),
    "reserve": {"Pod": pod_json("u3"), "NodeName": "n1"},
    "unreserve": {"Pod": {"Namespace": "default", "Name": "u3", "UID": "u3"}, "NodeName": "n1"},
    "agent": {
        "protoVersion": 7,
        "pod": {"namespace": "default", "name": "vm-1"},
        "computeUnit": UNIT,
        "resources": {"vCPUs": 2, "mem": "1Gi"},
        "lastPermit": {"vCPUs": 1, "mem": "1Gi"},
        "metrics": {},
    },
}

ODD: list[Any] = [
    None, True, 0, -1, 1, 7, 2**31, 2**53, 2**63, 2**64, 10**400, 0.5, 1e308, -0.0, "", " ", "-",
    "n1", "n2", "vm-1", "u2", "a b", "a/b", "\0", "\u2028", "\U0001f4a5", "1Gi", "250m", "1e999999",
    "-1", "9" * 300, "x" * 5000, [], {}, [[]], {"": {}}, ["n1", "n1"],
    {"vCPUs": "1", "mem": 1}, {"name": "n1"}, vm_resources(),
]  # fmt: skip
VALUES = st.sampled_from(ODD) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


PARTS = ["/", "api", "v1", "extender", "pods", "%", "%00", "%ff", "..", "?", "#", ";"]


@st.composite
def mutated(draw: st.DrawFn, valid: Json) -> bytes:
    """A good request of which up to three fields are something else, gone or spelled otherwise."""
    document = json.loads(json.dumps(valid))
    for _ in range(draw(st.integers(1, 3))):
        if not document:
            break
        mutate(draw, *draw(st.sampled_from(list(places(document)))))
    body = json.dumps(document).encode()
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.binary(max_size=4)) + body[at + draw(st.integers(0, 4)) :]
    return body


def mutate(draw: st.DrawFn, place: Any, key: Any) -> None:
    match draw(st.sampled_from(["value", "drop", "case", "wrap", "more"])):
        case "value":
            place[key] = copy.deepcopy(draw(VALUES))
        case "drop":
            del place[key]
        case "case" if isinstance(key, str):
            place[key.swapcase()] = place.pop(key)
        case "wrap":
            place[key] = [place[key]]
        case "more" if isinstance(place, dict):
            place[draw(st.text(max_size=8))] = copy.deepcopy(draw(VALUES))


def places(value: Any) -> Any:
    """Every (container, key) in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


@pytest.fixture
async def fuzzed(start: StartReplica, cluster: ClusterDouble) -> Replica:
    """A VM, a bound pod and an unbound one, and agents of every version welcome."""
    replica = await start(
        compute_unit=parse_compute_unit("250m/1Gi"),
        limits=LimitSettings(read_timeout=timedelta(milliseconds=200)),
    )
    cluster.node("n2", cpu="4")
    cluster.pod("vm-1", node="n1", metadata=runs_vm())
    cluster.pod("u0", node="n2", cpu="2")
    cluster.pod("u2")
    await replica.lead()
    return replica


def door_of(verb: str) -> tuple[Door, str]:
    return ("agent", "/") if verb == "agent" else ("extender", f"/extender/{verb}")


def check(reply: Reply, verb: str) -> None:
    allowed = {200, 400, 503, 404} if verb == "agent" else {200, 400, 503}
    assert reply.status in allowed, reply
    assert b"Traceback" not in reply.body
    assert reply.headers["X-Replica"] == "r1"
    if reply.status == 200:
        json.loads(reply.body)
    else:
        assert reply.kind == "text/plain"
        assert reply.text.rstrip("\n").isprintable()


@pytest.mark.parametrize("verb", VALID)
@EXAMPLES
@given(data=st.data())
async def test_a_request_that_is_nearly_right(
    fuzzed: Replica, verb: str, data: st.DataObject
) -> None:
    body = data.draw(mutated(VALID[verb]))
    before = await fuzzed.dump()

    reply = await fuzzed.send(*door_of(verb), body)

    check(reply, verb)
    if reply.status != 200 or verb not in WRITING:
        assert await fuzzed.dump() == before
    assert await fuzzed.verify() == []


@EXAMPLES
@given(body=st.binary(max_size=200), verb=st.sampled_from(list(VALID)))
async def test_bytes_that_mean_nothing(fuzzed: Replica, body: bytes, verb: str) -> None:
    before = await fuzzed.dump()

    reply = await fuzzed.send(*door_of(verb), body)

    check(reply, verb)
    assert reply.status == 400
    assert await fuzzed.dump() == before


@EXAMPLES
@given(
    door=st.sampled_from(["extender", "agent", "admin"]),
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "CONNECT", "PRI"]),
    path=st.lists(st.sampled_from(PARTS) | st.text(max_size=4), max_size=6),
    length=st.sampled_from(["", "Content-Length: 2\r\n", "Content-Length: x\r\n", "Expect: x\r\n"]),
)
async def test_lines_that_are_hardly_http(
    fuzzed: Replica, door: Door, method: str, path: list[str], length: str
) -> None:
    before = await fuzzed.dump()
    line = f"{method} /{''.join(path)} HTTP/1.1\r\nHost: x\r\n{length}Connection: close\r\n\r\n{{}}"

    answer = await exchange(fuzzed, door, line.encode(errors="surrogatepass"))

    if answer:  # a client that sends nonsense may be cut off
        status = int(answer.split(b" ")[1])
        assert status < 500 or status == 503, answer
    assert b"Traceback" not in answer
    assert await fuzzed.dump() == before


@EXAMPLES
@given(
    door=st.sampled_from(["extender", "agent", "admin"]),
    sent=st.binary(max_size=300) | st.lists(st.binary(max_size=40)).map(b"\r\n".join),
)
async def test_bytes_that_are_no_http(fuzzed: Replica, door: Door, sent: bytes) -> None:
    before = await fuzzed.dump()

    answer = await exchange(fuzzed, door, sent)

    assert b"Traceback" not in answer
    assert b" 500 " not in answer
    assert await fuzzed.dump() == before


async def exchange(replica: Replica, door: Door, sent: bytes) -> bytes:
    """All that comes back on a connection that sends these bytes and then no more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", replica.ports[door])
    try:
        writer.write(sent)
        writer.write_eof()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()
        await asyncio.wait([asyncio.ensure_future(writer.wait_closed())])
