"""The load generator: what it sends, what it takes for an answer, and how it counts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import repeat

import pytest

from bench.load import Connection, Load, LoadError, body_of, drive, request

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour"
REFUSED = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4\r\nfour\r\nb\r\n more bytes\r\n0\r\n\r\n"
)

Serve = Callable[..., str]


@dataclass(slots=True)
class _Script:
    """Answers every request with these pieces, one send each."""

    listener: socket.socket
    pieces: tuple[bytes, ...]
    threads: list[threading.Thread] = field(default_factory=list)

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.begin(self.answer, client)

    def answer(self, client: socket.socket) -> None:
        with client:
            while client.recv(1 << 16):
                for piece in self.pieces:
                    client.sendall(piece)

    def begin(self, work: Callable[..., None], *given: object) -> None:
        self.threads.append(threading.Thread(target=work, args=given))
        self.threads[-1].start()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`serve(*pieces)`: a URL where every request is answered with these, one send each."""
    script = _Script(socket.create_server(("127.0.0.1", 0)), ())

    def start(*pieces: bytes) -> str:
        script.pieces = pieces
        script.begin(script.accept)
        return f"http://127.0.0.1:{script.listener.getsockname()[1]}/x"

    yield start
    script.listener.shutdown(socket.SHUT_RDWR)
    script.listener.close()
    for thread in script.threads:
        thread.join()


@pytest.fixture
def connect() -> Iterator[Callable[[str], Connection]]:
    made: list[Connection] = []

    def open_one(url: str) -> Connection:
        made.append(Connection(url))
        return made[-1]

    yield open_one
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        ((PLAIN,), b"four"),
        ((PLAIN[:20], PLAIN[20:40], PLAIN[40:]), b"four"),
        ((CHUNKED,), b"four more bytes"),
        ((CHUNKED[:-3], CHUNKED[-3:]), b"four more bytes"),
    ],
    ids=["whole", "in pieces", "chunked", "chunked, in pieces"],
)
def test_answer_is_whole_however_it_comes(
    serve: Serve,
    connect: Callable[[str], Connection],
    pieces: tuple[bytes, ...],
    body: bytes,
) -> None:
    connection = connect(serve(*pieces))

    answers = [connection.ask(request(connection.url, b"{}")) for _ in range(2)]

    assert [(each.status, each.body) for each in answers] == [(200, body)] * 2


def test_request_is_whole_http() -> None:
    sent = request("http://host:1/path", b'{"a":1}')

    assert sent.startswith(b"POST /path HTTP/1.1\r\nHost: host:1\r\n")
    assert b"\r\nContent-Length: 7\r\n" in sent
    assert body_of(sent) == b'{"a":1}'


def test_every_connection_is_kept_busy_and_refusals_are_counted(
    serve: Serve, connect: Callable[[str], Connection]
) -> None:
    url = serve(REFUSED)
    connections = [connect(url) for _ in range(3)]

    load = drive(connections, [repeat(request(url, b"x")) for _ in connections], seconds=0.2)

    assert load.refused == len(load.waits) > 3
    assert load.seconds >= 0.2
    assert load.rate == pytest.approx(len(load.waits) / load.seconds)
    assert load.samples == [(request(url, b"x"), REFUSED)] * (len(load.waits) // 97)


def test_with_a_rate_so_many_are_sent_and_no_more(
    serve: Serve, connect: Callable[[str], Connection]
) -> None:
    url = serve(PLAIN)
    connections = [connect(url) for _ in range(3)]

    load = drive(
        connections, [repeat(request(url, b"x")) for _ in connections], seconds=0.5, rate=100
    )

    assert len(load.waits) == 50
    assert load.seconds >= 0.49


def test_quantile_of_the_waits() -> None:
    load = Load(1.0, [float(each) for each in range(100, 0, -1)])

    assert (load.at(0.5), load.at(0.99), load.at(1)) == (51.0, 100.0, 100.0)


def test_server_that_hangs_up_is_no_answer(
    serve: Serve, connect: Callable[[str], Connection]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = connect(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        listener.accept()[0].close()

        with pytest.raises((LoadError, ConnectionError)):
            connection.ask(request(connection.url, b"x"))
