"""Which requests are so plain that they can be answered without an HTTP library's help.

A client's requests have the same head each time, but for the length of their body. So each head is
judged once, with more distrust than an HTTP library has: what is not certainly plain is none.
"""

from __future__ import annotations

import re

_HEADER = re.compile(rb"([A-Za-z0-9-]+): ?([\x20-\x7e]*)")
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,8}")
_HARMLESS = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"user-agent",
    }
)
"""Headers that change nothing of an answer, and the one that says where the body ends."""

REMEMBERED = 1024
"""Heads; one for each client and length of body, so that many would be somebody's doing."""

NOT_PLAIN = -1
_END = b"\r\n\r\n"


class PlainHeads:
    """Tells plain requests for one path; remembers the heads that it has seen."""

    def __init__(self, path: str, *, head_limit: int, body_limit: int) -> None:
        self._first = f"POST {path} HTTP/1.1".encode()
        self._head_limit, self._body_limit = head_limit, body_limit
        self._lengths: dict[bytes, int] = {}

    def body(self, received: bytes) -> bytes | None:
        """The body where this is one whole plain request and nothing more."""
        head, _, body = received.partition(_END)
        length = self._lengths.get(head)
        if length is None:
            length = self._judge(head)
        return body if length == len(body) else None

    def _judge(self, head: bytes) -> int:
        length = self._length(head)
        if length != NOT_PLAIN:
            if len(self._lengths) >= REMEMBERED:
                self._lengths.clear()
            self._lengths[head] = length
        return length

    def _length(self, head: bytes) -> int:
        """Of the body that must follow."""
        first, *lines = head.split(b"\r\n")
        if first != self._first or len(head) > self._head_limit:
            return NOT_PLAIN
        found: dict[bytes, bytes] = {}
        for line in lines:
            header = _HEADER.fullmatch(line)
            name = header[1].lower() if header else b""
            if header is None or name not in _HARMLESS or name in found:
                return NOT_PLAIN
            found[name] = header[2]
        length = found.get(b"content-length", b"")
        if not _LENGTH.fullmatch(length) or int(length) > self._body_limit:
            return NOT_PLAIN
        return int(length)
