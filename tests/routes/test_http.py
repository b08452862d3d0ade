"""What the three doors share: limits, errors as answers, and requests that are none."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from autoscale_enforcer.config.settings import MIB, LimitSettings
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, Gate, pod_json, runs_vm
from tests.support.replica import UNIT, Door, Replica, Reply, bind_args

VERBS = ["filter", "prioritize", "preempt", "bind", "reserve", "unreserve"]
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
ASKED: dict[str, Any] = {
    "protoVersion": 7,
    "pod": {"namespace": "default", "name": "vm-1"},
    "computeUnit": UNIT,
    "resources": {"vCPUs": 2, "mem": "1Gi"},
}


def padded(size: int) -> bytes:
    """A good agent request of exactly so many bytes."""
    body = json.dumps(ASKED).encode()
    return body + b" " * (size - len(body))


async def pieces(body: bytes, size: int = 64) -> AsyncIterator[bytes]:
    """Sent as chunks, without Content-Length."""
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.fixture
async def vm(replica: Replica, cluster: ClusterDouble) -> Replica:
    cluster.pod("vm-1", node="n1", metadata=runs_vm())
    await replica.catch_up()
    return replica


class Wire:
    """A connection on which a test sends the bytes it wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, replica: Replica, door: Door) -> Wire:
        return cls(*await asyncio.open_connection("127.0.0.1", replica.ports[door]))

    async def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))
        await self.writer.drain()

    async def reply(self) -> Reply:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        body = await self.reader.readexactly(int(headers.get("Content-Length", 0)))
        return Reply(int(first.split()[1]), headers, body)

    async def is_closed(self) -> bool:
        """The other side has ended the connection, and nothing more came."""
        return await self.reader.read(1) == b""

    async def close(self) -> None:
        self.writer.close()
        await asyncio.wait([asyncio.ensure_future(self.writer.wait_closed())])


Connect = Callable[[Replica, Door], Awaitable[Wire]]


@pytest.fixture
async def wires() -> AsyncIterator[Connect]:
    """`await wires(replica, door)`: one more raw connection."""
    opened: list[Wire] = []

    async def connect(replica: Replica, door: Door) -> Wire:
        opened.append(await Wire.to(replica, door))
        return opened[-1]

    yield connect
    for wire in opened:
        await wire.close()


# Paths and methods


@pytest.mark.parametrize(
    ("door", "path"),
    [
        ("extender", "/"),
        ("extender", "/filter"),
        ("extender", "/extender"),
        ("extender", "/extender/"),
        ("extender", "/extender/filter/"),
        ("extender", "/extender/FILTER"),
        ("extender", "/extender/../livez"),
        ("extender", "/extender/%2e%2e%2f"),
        ("extender", "//extender/filter"),
        ("agent", "/x"),
        ("agent", "//"),
        ("admin", "/"),
        ("admin", "/api/v1"),
        ("admin", "/api/v1/pods/x"),
        ("admin", "/api/v1/pods/a/b/c"),
    ],
)
async def test_a_path_that_is_none_is_not_found(replica: Replica, door: Door, path: str) -> None:
    reply = await replica.send(door, path, b"{}")

    assert (reply.status, reply.kind, reply.headers["X-Replica"]) == (404, "text/plain", "r1")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("verb", VERBS)
async def test_verbs_must_be_posted(replica: Replica, verb: str, method: str) -> None:
    reply = await replica.send("extender", f"/extender/{verb}", method=method)

    assert (reply.status, reply.kind, reply.headers["X-Replica"]) == (405, "text/plain", "r1")
    assert reply.headers["Allow"] == "POST"


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: bogus\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        POST + b"X: " + b"y" * 20_000 + b"\r\n\r\n",
        b"POST /" + b"y" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["no", "method", "version", "length", "both", "coding", "tls", "header", "line"],
)
@pytest.mark.parametrize("door", ["extender", "agent", "admin"])
async def test_what_is_not_http_is_refused_and_the_connection_ended(
    replica: Replica, wires: Connect, door: Door, sent: bytes
) -> None:
    wire = await wires(replica, door)

    await wire.send(sent)

    reply = await wire.reply()
    assert (reply.status, reply.kind) == (400, "text/plain")
    assert "Traceback" not in reply.text
    assert await wire.is_closed()


@pytest.mark.parametrize("door", ["extender", "agent", "admin"])
async def test_an_expectation_that_is_no_text_is_refused(
    replica: Replica, wires: Connect, door: Door
) -> None:
    """aiohttp quoted it, could not, and answered 500. Found by `make fuzz`."""
    wire = await wires(replica, door)

    await wire.send(POST, b"Expect: 100-con\xf8inue\r\n\r\n")

    assert (await wire.reply()).status == 400


async def test_what_clients_do_fills_no_log(
    replica: Replica, wires: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of these was an error with a traceback, as many as a client liked."""
    packed = b"Content-Encoding: gzip\r\nContent-Length: 200000\r\n\r\n"
    for sent in (
        b"nonsense\r\n\r\n",
        POST + b"Expect: \xf8\r\n\r\n",
        POST + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
        POST + b"Content-Length: 9\r\n\r\n{",
        b"PUT / HTTP/1.1\r\nHost: x\r\n" + packed + gzip.compress(b"x" * 50_000)[:20] + b"y" * 9000,
    ):
        wire = await wires(replica, "agent")
        await wire.send(sent)
        await wire.close()

    await replica.send("agent", "/", b"{}")  # and what came before it has been read too
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == []


# Bodies


@pytest.mark.parametrize("size", [900, 1024])
@pytest.mark.parametrize("as_chunks", [False, True])
async def test_agents_may_send_1_kib(vm: Replica, size: int, as_chunks: bool) -> None:
    body = padded(size)

    reply = await vm.send("agent", "/", pieces(body) if as_chunks else body)

    assert (reply.status, reply.json) == (200, {"permit": {"vCPUs": 2, "mem": "1Gi"}})


@pytest.mark.parametrize("as_chunks", [False, True])
async def test_agents_may_send_no_more(vm: Replica, as_chunks: bool) -> None:
    """Field report 29."""
    before, body = await vm.dump(), padded(1025)

    reply = await vm.send("agent", "/", pieces(body) if as_chunks else body)

    assert (reply.status, reply.kind) == (400, "text/plain")
    assert reply.text == "the body is longer than 1024 bytes\n"
    assert await vm.dump() == before


@pytest.mark.parametrize(
    "framing",
    [b"Content-Length: 5000000", b"Transfer-Encoding: chunked"],
    ids=["length", "chunked"],
)
@pytest.mark.parametrize("method", [b"POST", b"PUT"])
async def test_a_long_body_is_refused_without_being_read(
    vm: Replica, wires: Connect, framing: bytes, method: bytes
) -> None:
    """Only 2 KB of the 5 MB are ever sent: a reader that waited for the rest would hang."""
    wire = await wires(vm, "agent")
    start = b"" if b"Length" in framing else b"4C4B40\r\n"

    await wire.send(method, b" / HTTP/1.1\r\nHost: x\r\n", framing, b"\r\n\r\n", start, b" " * 2000)

    reply = await wire.reply()
    assert (reply.status, reply.kind, reply.headers["X-Replica"]) == (400, "text/plain", "r1")
    assert await wire.is_closed()


async def test_the_extender_takes_a_thousand_whole_nodes(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Field report 29: a default body limit turned large filter calls away."""
    nodes = [{"metadata": {"name": f"n{i}"}, "status": {"x": "y" * 17_000}} for i in range(1000)]
    body = {"Pod": pod_json("u1"), "Nodes": {"metadata": {}, "items": nodes}}

    began = time.process_time()
    reply = await replica.send("extender", "/extender/filter", body)

    assert time.process_time() - began < 5  # caller and replica are one process here
    assert reply.status == 200
    assert reply.json["Nodes"]["items"] == [nodes[1]]
    assert len(reply.json["FailedNodes"]) == 999


async def test_the_extender_takes_64_mib_and_no_more(replica: Replica, wires: Connect) -> None:
    wire = await wires(replica, "extender")
    head = b"POST /extender/bind HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"

    await wire.send(head % (64 * MIB + 1))

    assert (await wire.reply()).text == "the body is longer than 67108864 bytes\n"
    assert await wire.is_closed()


async def test_a_limit_counts_what_a_body_unpacks_to(replica: Replica, start: StartReplica) -> None:
    """A packed body of 1 KiB may unpack to a thousand times that."""
    small = await start(limits=LimitSettings(extender_body=10_000))
    packed = gzip.compress(b" " * 1_000_000)
    headers = {"Content-Encoding": "gzip"}

    for one, door, path in ((small, "extender", "/extender/bind"), (replica, "agent", "/")):
        reply = await one.send(door, path, packed[:1024], headers=headers)  # type: ignore[arg-type]
        assert reply.status == 400


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "nonsense"])
async def test_a_body_that_cannot_be_unpacked_is_refused(vm: Replica, coding: str) -> None:
    before = await vm.dump()

    reply = await vm.send("agent", "/", b"\xff" * 100, headers={"Content-Encoding": coding})

    assert (reply.status, reply.kind) == (400, "text/plain")
    assert await vm.dump() == before


@pytest.mark.parametrize("chunk", [b"zz\r\nhello\r\n", b"5\r\nhelloworld\r\n", b"-5\r\n"])
async def test_chunks_that_are_none_are_refused(vm: Replica, wires: Connect, chunk: bytes) -> None:
    wire = await wires(vm, "agent")

    await wire.send(POST + b"Transfer-Encoding: chunked\r\n\r\n", chunk)

    reply = await wire.reply()
    assert (reply.status, reply.kind) == (400, "text/plain")


@pytest.mark.parametrize("framing", [b"Content-Length: 500", b"Transfer-Encoding: chunked"])
async def test_a_body_that_does_not_arrive_is_refused(
    start: StartReplica, wires: Connect, framing: bytes
) -> None:
    limits = LimitSettings(read_timeout=timedelta(milliseconds=50))
    wire = await wires(await start(limits=limits), "agent")

    await wire.send(POST + b"", framing, b"\r\n\r\n")

    reply = await wire.reply()
    assert (reply.status, reply.text) == (400, "the body did not arrive in time\n")
    assert await wire.is_closed()


async def test_a_client_that_hangs_up_in_its_body_disturbs_nobody(
    vm: Replica, wires: Connect
) -> None:
    wire = await wires(vm, "agent")
    await wire.send(POST + b"Content-Length: 500\r\n\r\n{")

    await wire.close()

    assert await vm.permit("vm-1", 2, "1Gi") == (2, "1Gi")


@pytest.mark.parametrize("content_type", ["text/plain", "application/json; charset=x", "", "??"])
async def test_what_a_body_is_called_does_not_matter(vm: Replica, content_type: str) -> None:
    reply = await vm.send("agent", "/", ASKED, headers={"Content-Type": content_type})

    assert reply.status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"3",
        b'"x"',
        b"{",
        b"\xff\xfe",
        b'{"Pod": "\xff"}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"Pod": {"metadata": {"uid": "\\ud800", "name": "x", "namespace": "y"}}}',
        b'{"pod": {"name": "\\ud800", "namespace": "y"}, "protoVersion": 7}',
        b'{"Pod": NaN}',
    ],
    ids=range(13),
)
async def test_bodies_that_make_no_sense_change_nothing(replica: Replica, body: bytes) -> None:
    before = await replica.dump()

    replies = [await replica.send("extender", f"/extender/{verb}", body) for verb in VERBS]
    replies.append(await replica.send("agent", "/", body))

    for reply in replies:
        assert (reply.status, reply.kind, reply.headers["X-Replica"]) == (400, "text/plain", "r1")
        assert reply.text.rstrip("\n").isprintable()
    assert await replica.dump() == before


POD = pod_json("u1")
NAMED = {"metadata": {"name": "u1", "namespace": "default"}}


@pytest.mark.parametrize(
    ("verb", "body", "path"),
    [
        ("filter", {"NodeNames": ["n1"]}, "Pod"),
        ("filter", {"Pod": POD}, "NodeNames"),
        ("filter", {"Pod": POD, "NodeNames": None, "Nodes": None}, "NodeNames"),
        ("filter", {"Pod": POD, "NodeNames": "n1"}, "NodeNames"),
        ("filter", {"Pod": POD, "NodeNames": ["n1", 5]}, "NodeNames[1]"),
        ("filter", {"Pod": POD, "NodeNames": ["n1", "a b"]}, "NodeNames[1]"),
        ("filter", {"Pod": POD, "Nodes": {"items": [{}]}}, "Nodes.items[0].metadata"),
        ("filter", {"Pod": POD, "Nodes": {"items": 5}}, "Nodes.items"),
        ("filter", {"Pod": NAMED, "NodeNames": ["n1"]}, "Pod.metadata.uid"),
        ("prioritize", {"Pod": {"spec": {}}, "NodeNames": ["n1"]}, "Pod.metadata"),
        ("prioritize", {"Pod": POD, "NodeNames": {}}, "NodeNames"),
        ("preempt", {"Pod": POD}, "NodeNameToMetaVictims"),
        ("preempt", {"Pod": POD, "NodeNameToMetaVictims": []}, "NodeNameToMetaVictims"),
        (
            "preempt",
            {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": ""}]}}},
            "NodeNameToMetaVictims[n1].Pods[0].UID",
        ),
        (
            "preempt",
            {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"NumPDBViolations": -1}}},
            "NodeNameToMetaVictims[n1].NumPDBViolations",
        ),
        ("bind", bind_args(POD) | {"PodUID": "a b"}, "PodUID"),
        ("bind", bind_args(POD) | {"Node": "a/b"}, "Node"),
        ("bind", bind_args(POD) | {"PodName": 5}, "PodName"),
        ("bind", bind_args(POD) | {"PodNamespace": "x" * 254}, "PodNamespace"),
    ],
)
async def test_a_wrong_field_is_named_and_nothing_changed(
    replica: Replica, verb: str, body: dict[str, Any], path: str
) -> None:
    before = await replica.dump()

    reply = await replica.send("extender", f"/extender/{verb}", body)

    assert (reply.status, reply.kind) == (400, "text/plain")
    assert reply.text.startswith(f"{path}: ")
    assert await replica.dump() == before


# Connections


async def test_requests_may_follow_each_other_without_waiting(vm: Replica, wires: Connect) -> None:
    wire = await wires(vm, "agent")
    good, bad = padded(300), b"{}"

    for body in (good, bad, good):
        await wire.send(POST, b"Content-Length: %d\r\n\r\n" % len(body), body)

    assert [(await wire.reply()).status for _ in range(3)] == [200, 400, 200]


async def test_a_slow_bind_does_not_hold_up_other_connections(
    vm: Replica, cluster: ClusterDouble
) -> None:
    gate = Gate()
    cluster.answers_bind(gate.passing)
    slow = asyncio.ensure_future(vm.bind(cluster.pod("u1")))
    await gate.arrived.wait()

    assert (await vm.filter(pod_json("u2"))).passed == ["n1"]
    assert await vm.permit("vm-1", 2, "1Gi") == (2, "1Gi")

    gate.open.set()
    assert await slow == ""


async def test_http_1_0_is_answered_and_ended(vm: Replica, wires: Connect) -> None:
    wire = await wires(vm, "agent")

    await wire.send(b"POST / HTTP/1.0\r\nContent-Length: 300\r\n\r\n", padded(300))

    assert (await wire.reply()).status == 200
    assert await wire.is_closed()


async def test_a_client_that_waits_for_continue_is_told_to(vm: Replica, wires: Connect) -> None:
    """curl waits so with bodies above 1 KiB."""
    wire = await wires(vm, "agent")
    await wire.send(POST + b"Content-Length: 300\r\nExpect: 100-continue\r\n\r\n")
    assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"

    await wire.send(padded(300))

    assert (await wire.reply()).status == 200


async def test_an_expectation_that_nobody_knows_is_refused(vm: Replica) -> None:
    reply = await vm.send("agent", "/", ASKED, headers={"Expect": "the-inquisition"})

    assert (reply.status, reply.headers["X-Replica"]) == (417, "r1")


async def test_a_bug_of_ours_is_500_without_its_traceback(
    vm: Replica, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(type(vm.ledger), "stamp", fail)

    reply = await vm.ask("vm-1", 2, "1Gi")

    assert (reply.status, reply.text) == (500, "internal error\n")
    assert reply.headers["X-Replica"] == "r1"
    assert "ZeroDivisionError: secret" in caplog.text
