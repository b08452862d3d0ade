"""The load generator: HTTP/1.1 over plain sockets, with requests that were encoded beforehand.

One thread and one epoll, no event loop and no HTTP library, so that it takes as little as Python
can from the machine that it shares with what it measures. `ceiling` says how fast that is.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 60.0
"""Without any answer; a bench that waits longer has nothing to tell."""

_READ_AT_ONCE = 1 << 18

_UNKNOWN, _CHUNKED = -1, -2
"""Lengths of an answer whose head has not arrived, and of one that does not say; JSON holds no CR,
so that the end of the last chunk is found by its bytes."""

_LAST_CHUNK = b"\r\n0\r\n\r\n"


class LoadError(Exception):
    """The other side ended the connection, or did not answer."""


def request(url: str, body: bytes) -> bytes:
    """A POST of that body, whole."""
    parts = urlsplit(url)
    head = (
        f"POST {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, as it came."""

    status: int
    body: bytes


@dataclass(slots=True)
class Connection:
    """One connection that is kept. Blocking unless `drive` has it."""

    url: str
    socket: socket.socket = field(init=False)
    _got: bytearray = field(default_factory=bytearray)
    _length: int = _UNKNOWN
    """Of the whole answer that is arriving, where it is known."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        address = (parts.hostname or "", parts.port or 80)
        self.socket = socket.create_connection(address, timeout=TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """End it."""
        self.socket.close()

    def ask(self, whole: bytes) -> Answer:
        """Send a request and wait for its answer."""
        self.socket.sendall(whole)
        while True:
            found = self.receive()
            if found is not None:
                return Answer(int(found[9:12]), body_of(found))

    def receive(self) -> bytes | None:
        """The answer with its head, once it is whole; one read of the socket at most."""
        chunk = self.socket.recv(_READ_AT_ONCE)
        if not chunk:
            raise LoadError(f"{self.url} ended the connection")
        if not self._got and _length(chunk) == len(chunk):  # nearly always: in one piece
            return chunk
        self._got += chunk
        if self._length < 0:
            self._length = _length(self._got)
        if self._length == _CHUNKED:
            is_whole = self._got.endswith(_LAST_CHUNK)
        else:
            is_whole = 0 <= self._length <= len(self._got)
        if not is_whole:
            return None
        found = bytes(self._got)
        self._got.clear()
        self._length = _UNKNOWN
        return found


def body_of(answer: bytes) -> bytes:
    """The body of a whole answer, put together where it came in chunks."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"\r\nTransfer-Encoding: chunked" not in head:
        return body
    parts, at = [], 0
    while size := int(body[at : (end := body.index(b"\r\n", at))], 16):
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 4 + size
    return b"".join(parts)


def _length(got: bytes | bytearray) -> int:
    end = got.find(b"\r\n\r\n")
    if end < 0:
        return _UNKNOWN
    at = got.find(b"Content-Length: ", 0, end)
    if at >= 0:
        return end + 4 + int(got[at + 16 : got.find(b"\r", at)])
    if got.find(b"Transfer-Encoding: chunked", 0, end) >= 0:
        return _CHUNKED
    raise LoadError(f"an answer without a length: {bytes(got[:end])!r}")


@dataclass(slots=True)
class Load:
    """What came of it."""

    seconds: float
    waits: list[float]
    """Of each answer, seconds from when its request was due."""
    refused: int = 0
    """Answers that were no 200."""
    samples: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Requests and their answers, to be judged."""

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.waits) / self.seconds

    def at(self, share: float) -> float:
        """That quantile of the waits."""
        ordered = sorted(self.waits)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


@dataclass(slots=True)
class _Turn:
    """One connection's requests, over and over."""

    connection: Connection
    requests: Iterator[bytes]
    sent: bytes = b""
    due: float = 0.0

    def send(self, due: float) -> None:
        self.sent, self.due = next(self.requests), due
        self.connection.socket.sendall(self.sent)


SAMPLE_EVERY = 97
"""Answers; prime, so that it does not fall in step with requests that alternate."""


def drive(
    connections: Sequence[Connection],
    requests: Sequence[Iterator[bytes]],
    *,
    seconds: float,
    rate: float = 0.0,
) -> Load:
    """Keep every connection busy for so long; with `rate`, so many requests a second in all.

    `requests` are those of each connection. With a rate a wait begins when the request was due,
    also where every connection was busy then: a server that stalls is not asked less for it.
    """
    pairs = zip(connections, requests, strict=True)
    turns = {each.socket.fileno(): _Turn(each, source) for each, source in pairs}
    poll = select.epoll()
    for number in turns:
        poll.register(number, select.EPOLLIN)
    try:
        return _paced(turns, poll, seconds, rate) if rate else _closed(turns, poll, seconds)
    finally:
        poll.close()


def _closed(turns: dict[int, _Turn], poll: select.epoll, seconds: float) -> Load:
    load, clock = Load(0.0, []), time.perf_counter
    began = clock()
    end, in_flight = began + seconds, len(turns)
    for turn in turns.values():
        turn.send(clock())
    while in_flight:
        for number, _ in _events(poll):
            turn = turns[number]
            answer = turn.connection.receive()
            if answer is None:
                continue
            now = clock()
            _note(load, turn, answer, now)
            if now < end:
                turn.send(now)
            else:
                in_flight -= 1
    load.seconds = clock() - began
    return load


def _paced(turns: dict[int, _Turn], poll: select.epoll, seconds: float, rate: float) -> Load:
    load, clock = Load(0.0, []), time.perf_counter
    idle, began, sent = list(turns.values()), clock(), 0
    total = int(seconds * rate)
    while len(load.waits) < total:
        due = min(int((clock() - began) * rate) + 1, total)
        while idle and sent < due:
            idle.pop().send(began + sent / rate)
            sent += 1
        pause = max(began + sent / rate - clock(), 0.0) if idle and sent < total else 1.0
        for number, _ in poll.poll(pause):
            turn = turns[number]
            answer = turn.connection.receive()
            if answer is not None:
                _note(load, turn, answer, clock())
                idle.append(turn)
        if clock() - began > seconds + TIMEOUT_SECONDS:
            raise LoadError("the answers do not come")
    load.seconds = clock() - began
    return load


def _events(poll: select.epoll) -> list[tuple[int, int]]:
    found = poll.poll(TIMEOUT_SECONDS)
    if not found:
        raise LoadError("no answer")
    return found


def _note(load: Load, turn: _Turn, answer: bytes, now: float) -> None:
    load.waits.append(now - turn.due)
    if answer[9:12] != b"200":
        load.refused += 1
    if len(load.waits) % SAMPLE_EVERY == 0:
        load.samples.append((turn.sent, answer))
