"""Requests over connections of our own: what is read, which connections are used again."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
import trustme
from tests.support.fake_api.tls import server_context

from autoscale_enforcer.cluster.kubernetes import quick
from autoscale_enforcer.cluster.kubernetes.access import Access, NoCredentials
from autoscale_enforcer.cluster.kubernetes.quick import QuickLines

WHOLE = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = (
    b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n"
    b"1\r\n{\r\n1;why=not\r\n}\r\n0\r\nDigest: x\r\n\r\n"
)
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(slots=True)
class Scripted:
    """A server that answers as it is told; the end of some answers is that of the connection."""

    answers: list[bytes] = field(default_factory=list)
    asked: list[bytes] = field(default_factory=list)
    """The requests, each with its body `{}`."""
    connections: int = 0
    stays: bool = True
    """False: the connection ends with each answer."""
    url: str = ""
    _ends: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._ends.add(writer)
        try:
            while True:
                self.asked.append(await reader.readuntil(b"\r\n\r\n{}"))
                answer = self.answers.pop(0) if self.answers else WHOLE
                writer.write(answer)
                if not (self.stays and (b"Length" in answer or b"chunked" in answer)):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def end_connections(self) -> None:
        for writer in self._ends:
            writer.close()


@asynccontextmanager
async def scripted(tls: ssl.SSLContext | None = None) -> AsyncIterator[Scripted]:
    made = Scripted()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        port = server.sockets[0].getsockname()[1]
        made.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield made
        made.end_connections()


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    async with scripted() as made:
        yield made


@pytest.fixture
def lines(server: Scripted) -> Iterator[QuickLines]:
    made = quick_lines(Access(server=f"{server.url}/below", credentials=NoCredentials()))
    yield made
    made.close()


def quick_lines(access: Access) -> QuickLines:
    return QuickLines(access, connect=timedelta(seconds=5))


async def ask(lines: QuickLines) -> tuple[int, bytes]:
    status, _, body = await lines.ask("POST", "/pods", {"Accept": "a"}, b"{}")
    return status, body


async def test_request_is_sent_whole(server: Scripted, lines: QuickLines) -> None:
    await ask(lines)

    host = server.url.removeprefix("http://")
    assert server.asked == [
        f"POST /below/pods HTTP/1.1\r\nHost: {host}\r\nAccept: a\r\n"
        "Content-Length: 2\r\n\r\n{}".encode()
    ]


@pytest.mark.parametrize(
    ("answer", "stays"),
    [
        (WHOLE, True),
        (CHUNKED, True),
        (GO_ON + WHOLE, True),
        (WHOLE.replace(b"1.1", b"1.0"), False),
        (WHOLE.replace(b"Created\r\n", b"Created\r\nConnection: close\r\n"), False),
        (b"HTTP/1.1 201 Created\r\n\r\n{}", False),
    ],
    ids=["whole", "in chunks", "after a go on", "of HTTP/1.0", "the last", "until the end"],
)
async def test_answer_comes_whole_and_its_connection_is_used_again_where_it_may_be(
    server: Scripted, lines: QuickLines, answer: bytes, stays: bool
) -> None:
    server.answers = [answer]

    answers = [await ask(lines), await ask(lines)]

    assert answers == [(201, b"{}")] * 2
    assert server.connections == (1 if stays else 2)


async def test_answer_without_a_body_ends_with_its_head(
    server: Scripted, lines: QuickLines
) -> None:
    server.answers = [b"HTTP/1.1 204 No Content\r\nDate: chunked\r\n\r\n"]

    assert [await ask(lines), await ask(lines)] == [(204, b""), (201, b"{}")]
    assert server.connections == 1


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (b"", EOFError),
        (b"SSH-2.0-OpenSSH\r\n\r\n", ValueError),
        (b"HTTP/1.1 fine\r\n\r\n", ValueError),
        (b"HTTP/1.1 201\r\nContent-Length: -2\r\n\r\n{}", ValueError),
        (b"HTTP/1.1 201\r\nContent-Length: 2\r\n\r\n{", EOFError),
        (CHUNKED.replace(b"1;why=not", b"x"), ValueError),
        (b"HTTP/1.1 201\r\nX: " + b"x" * (1 << 17), asyncio.LimitOverrunError),
    ],
    ids=["none", "no HTTP", "no status", "no length", "a part", "bad chunks", "a head without end"],
)
async def test_what_is_no_answer_is_raised_and_nothing_is_sent_twice(
    server: Scripted, lines: QuickLines, answer: bytes, raised: type[Exception]
) -> None:
    server.answers, server.stays = [answer], raised is ValueError
    with pytest.raises(raised):
        await ask(lines)
    server.stays = True

    assert await ask(lines) == (201, b"{}")
    assert (len(server.asked), server.connections) == (2, 2)


async def test_connection_that_the_server_ended_is_not_used_again(
    server: Scripted, lines: QuickLines
) -> None:
    await ask(lines)
    server.end_connections()
    await asyncio.sleep(0.05)

    assert await ask(lines) == (201, b"{}")
    assert server.connections == 2


async def test_connection_whose_answer_nobody_waits_for_is_given_up(
    server: Scripted, lines: QuickLines
) -> None:
    server.answers = [b"HTTP/1.1 201\r\nContent-Length: 2\r\n\r\n"]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await ask(lines)

    assert await ask(lines) == (201, b"{}")
    assert server.connections == 2


async def test_connections_that_are_not_needed_are_ended(
    server: Scripted, lines: QuickLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "KEPT_FOR", 0.05)
    await asyncio.gather(ask(lines), ask(lines))
    assert server.connections == 2

    await asyncio.sleep(0.2)

    assert not lines._lines
    assert await ask(lines) == (201, b"{}")
    assert server.connections == 3


async def test_connection_that_trusted_other_files_is_not_used_again() -> None:
    authority = trustme.CA()
    trusts = [ssl.create_default_context() for _ in range(2)]
    for each in trusts:
        authority.configure_trust(each)
    now = iter([trusts[0]] * 3 + [trusts[1]] * 3)
    async with scripted(server_context(authority)) as server:
        access = Access(server=server.url, credentials=NoCredentials(), tls=lambda: next(now))
        lines = quick_lines(access)

        answers = [await ask(lines) for _ in range(4)]
        lines.close()

    assert answers == [(201, b"{}")] * 4
    assert server.connections == 2


async def test_server_of_another_name_than_its_certificate_is_not_asked() -> None:
    authority, trust = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trust)
    async with scripted(server_context(authority)) as server:
        lines = quick_lines(
            Access(
                server=server.url,
                credentials=NoCredentials(),
                tls=lambda: trust,
                server_name="kubernetes.default.svc",
            )
        )
        with pytest.raises(ConnectionError, match="Cannot connect"):
            await ask(lines)
        lines.close()

    assert server.asked == []
