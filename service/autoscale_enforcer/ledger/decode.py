"""The ledger's keys as typed rows. Private to the package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autoscale_enforcer.ledger.verify import Books, Breach
from autoscale_enforcer.model.rows import NodeRow, PodRow

PARTS = ("meta", "nodes", "pods", "names", "facts", "changes", "deadlines", "gone")
"""What an export holds, in its order."""

Pairs = dict[bytes, bytes]


def add_part(books: Books, part: str, found: Pairs) -> None:
    """Put what was found of one of PARTS into the books, beside what is there."""
    match part:
        case "nodes" | "pods":
            kind = NodeRow if part == "nodes" else PodRow
            getattr(books, part).update(_rows(found, kind, books.unreadable))
        case "meta" | "names":
            getattr(books, part).update(as_text(found))
        case "facts":
            books.blobs.update((key.decode(), value) for key, value in found.items())
        case _:
            numbers = ((key.decode(), int(float(value))) for key, value in found.items())
            getattr(books, part).update(numbers)


def pairs(flat: Sequence[bytes]) -> Pairs:
    """A flat list of key, value, key, value, … as a dict."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def as_text(found: dict[bytes, Any]) -> dict[str, str]:
    """All of it as text, but for the journal's context, which is msgpack."""
    return {key.decode(): value.decode() for key, value in found.items() if key != b"context"}


def _rows(
    found: Pairs, kind: type[NodeRow | PodRow], unreadable: list[Breach]
) -> Iterator[tuple[str, NodeRow | PodRow]]:
    for key, text in found.items():
        try:
            yield key.decode(), kind.decode(text.decode())
        except ValueError as error:
            unreadable.append(Breach(1, key.decode(), f"unreadable row: {error}"))
