"""What is a plain request is certainly one; everything else is left to an HTTP library."""

from __future__ import annotations

import pytest

from autoscale_enforcer.api.door.plain_head import REMEMBERED, PlainHeads

GO = (
    b"POST / HTTP/1.1\r\nHost: 10.0.0.1:10299\r\nUser-Agent: Go-http-client/1.1\r\n"
    b"Content-Length: 2\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n{}"
)
PLAIN = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture
def heads() -> PlainHeads:
    return PlainHeads("/", head_limit=200, body_limit=100)


@pytest.mark.parametrize("sent", [GO, PLAIN, PLAIN.replace(b"Host", b"hOsT")])
def test_plain_request_is_told_by_its_body_each_time(heads: PlainHeads, sent: bytes) -> None:
    assert [heads.body(sent), heads.body(sent)] == [b"{}", b"{}"]


def with_line(line: bytes) -> bytes:
    return PLAIN.replace(b"Host: x", b"Host: x\r\n" + line)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        PLAIN[:-1],
        PLAIN[:-2],
        PLAIN + b"x",
        PLAIN + PLAIN,
        b"\r\n" + PLAIN,
        PLAIN.replace(b"POST", b"PUT"),
        PLAIN.replace(b"POST", b"post"),
        PLAIN.replace(b" / ", b" /x "),
        PLAIN.replace(b" / ", b" /?a "),
        PLAIN.replace(b"1.1", b"1.0"),
        PLAIN.replace(b"\r\n", b"\n"),
        PLAIN.replace(b": 2", b": 02"),
        PLAIN.replace(b": 2", b": +2"),
        PLAIN.replace(b": 2", b": 2, 2"),
        PLAIN.replace(b": 2", b": 2 "),
        PLAIN.replace(b"Content-Length: 2\r\n", b""),
        PLAIN.replace(b"Host: x", b"Host : x"),
        PLAIN.replace(b"Host: x", b" Host: x"),
        PLAIN.replace(b"Host: x", b"Host: x\r\n y"),
        PLAIN.replace(b"Host: x", b"Host: \xff"),
        PLAIN.replace(b"Host: x", b"Host: \x00"),
        PLAIN.replace(b"Host: x", b"Host: x\ry"),
        PLAIN.replace(b"Content-Length: 2", b"Content-Length: 101").replace(b"{}", b"x" * 101),
        PLAIN.replace(b"Host: x", b"Host: " + b"x" * 200),
        with_line(b"Host: x"),
        with_line(b"Content-Length: 2"),
        with_line(b"content-length: 3"),
        with_line(b"Transfer-Encoding: chunked"),
        with_line(b"Content-Encoding: gzip"),
        with_line(b"Connection: close"),
        with_line(b"Expect: 100-continue"),
        with_line(b"Upgrade: h2c"),
        with_line(b"Authorization: Bearer x"),
        with_line(b"no header"),
        with_line(b""),
    ],
)
def test_anything_else_is_not_plain(heads: PlainHeads, sent: bytes) -> None:
    heads.body(PLAIN)

    assert [heads.body(sent), heads.body(sent)] == [None, None]


def test_no_more_heads_are_kept_than_its_limit(heads: PlainHeads) -> None:
    for number in range(2 * REMEMBERED + 1):
        heads.body(PLAIN.replace(b"Host: x", b"Host: %d" % number))

    assert len(heads._lengths) == 1
    assert heads.body(PLAIN) == b"{}"
