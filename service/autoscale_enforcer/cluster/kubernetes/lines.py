"""A stream of lines, as a watch sends them."""

from __future__ import annotations

from collections.abc import Iterator


class LineSplitter:
    """Lines out of chunks that end anywhere; a line may be of any length."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that are whole now, empty ones left out."""
        first, *rest = chunk.split(b"\n")
        self._parts.append(first)
        for following in rest:
            line = b"".join(self._parts)
            self._parts = [following]
            if line.strip():
                yield line

    @property
    def is_mid_line(self) -> bool:
        """Whether the stream broke off inside a line."""
        return any(self._parts)
