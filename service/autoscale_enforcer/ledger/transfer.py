"""The whole ledger out of Redis and back: for verify, and as a msgpack file for operators."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import msgpack

from autoscale_enforcer.errors import ServiceError
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.journal import JournalEntry
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Keep, Lead
from autoscale_enforcer.ledger.schema import SCHEMA, mismatch
from autoscale_enforcer.ledger.verify import Books, Breach, breaches
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import NodeRow, PodRow

FORMAT = "autoscale-enforcer books 1"
_PARTS = ("meta", "nodes", "pods", "names", "facts", "changes", "deadlines", "gone")
JOURNAL_LOOKED_AT = 10_000
"""Newest entries that verify judges."""

_CHUNK = 500
_LEASE = timedelta(seconds=30)

Row = TypeVar("Row", NodeRow, PodRow)


class ImportRefused(ServiceError):
    """The file was not taken; the ledger is as it was."""


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """What an import put into the ledger."""

    nodes: int
    pods: int


async def read_books(ledger: Ledger, *, blobs: bool = False) -> Books:
    """The ledger at one moment; costs Redis milliseconds for each 10,000 pods."""
    *parts, journal = await ledger.read_all(blobs=blobs, entries=JOURNAL_LOOKED_AT)
    books = _books([_pairs(part) for part in parts])
    books.journal = [JournalEntry.decode(_text(_pairs(fields))) for _, fields in reversed(journal)]
    return books


async def export_books(ledger: Ledger) -> bytes:
    """The whole ledger as a msgpack file; LedgerUnavailable where none is built."""
    *parts, _ = await ledger.read_all(blobs=True)
    content = {name: _pairs(part) for name, part in zip(_PARTS, parts, strict=True)}
    packed: bytes = msgpack.packb({"format": FORMAT, **content})
    return packed


async def import_books(ledger: Ledger, content: bytes, *, replace: bool) -> ImportSummary:
    """Put an exported ledger in the place of this one, suspect until it has been compared.

    ImportRefused where the file is none of ours or does not add up, where there are books and
    `replace` is not said, or where a replica leads.
    """
    books = _open_file(content)
    await _claim(ledger, books)
    guard = await ledger.look()
    if guard.state != "UNBUILT" and not replace:
        raise ImportRefused("the ledger has books already: --replace puts these in their place")
    token = secrets.token_hex(8)
    lead, holder = await ledger.take_lease(holder="import", token=token, lifetime=_LEASE)
    if lead is not Lead.LEADER:
        raise ImportRefused(f"replica {holder} leads: stop the replicas first")
    try:
        await _load(ledger, Leadership(token), books)
    finally:
        await ledger.drop_lease(token=token)
    return ImportSummary(len(books.nodes), len(books.pods))


def _check_schema(meta: dict[bytes, bytes]) -> None:
    found = int(meta.get(b"schema", b"0"))
    if found != SCHEMA:
        raise ImportRefused(f"{mismatch(found)}: import it with the release that wrote it")


async def _claim(ledger: Ledger, books: Books) -> None:
    """The books of another cluster would be compared with this one, and thrown away."""
    cluster = books.meta.get("cluster")
    if cluster:
        keep, owner = await ledger.claim(cluster)
        if keep is Keep.FOREIGN:
            raise ImportRefused(f"the file is of the cluster {cluster}, this ledger is {owner}'s")


async def _load(ledger: Ledger, leader: Leadership, books: Books) -> None:
    building = await ledger.begin_build(leader)
    if building is None:
        raise ImportRefused("another replica took the lead")
    rows: list[tuple[str, str, NodeRow | PodRow]] = [
        *(("node", name, row) for name, row in books.nodes.items()),
        *(("pod", uid, row) for uid, row in books.pods.items()),
    ]
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        loads = (
            ledger.load_row(kind, name, row.encode(), books.blobs.get(name, b""), leader=building)
            for kind, name, row in chunk
        )
        if Lead.FENCED in await asyncio.gather(*loads):
            raise ImportRefused("another replica took the lead")
    if await ledger.publish_build(building, suspect=True) is not Lead.PUBLISHED:
        raise ImportRefused("another replica took the lead")


def _open_file(content: bytes) -> Books:
    try:
        file = msgpack.unpackb(content)
        known = file["format"] == FORMAT
        _check_schema(file["meta"])
        books = _books([file[part] for part in _PARTS]) if known else Books()
    except (ValueError, KeyError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise ImportRefused(f"no export of autoscale-enforcer: {error!r}") from error
    if not known:
        raise ImportRefused(f"an export of another format: {file['format']!r}")
    if wrong := breaches(books):
        raise ImportRefused(f"the books in the file do not add up: {wrong[0]}")
    return books


def _books(parts: list[dict[bytes, bytes]]) -> Books:
    meta, nodes, pods, names, facts, changes, deadlines, gone = parts
    unreadable: list[Breach] = []
    return Books(
        meta=_text(meta),
        nodes={NodeName(k): v for k, v in _rows(nodes, NodeRow, unreadable)},
        pods={PodUid(k): v for k, v in _rows(pods, PodRow, unreadable)},
        names={PodName(k): PodUid(v) for k, v in _text(names).items()},
        blobs={k.decode(): v for k, v in facts.items()},
        changes={NodeName(k): int(float(v)) for k, v in _text(changes).items()},
        deadlines={PodUid(k): int(float(v)) for k, v in _text(deadlines).items()},
        gone={k: int(float(v)) for k, v in _text(gone).items()},
        unreadable=unreadable,
    )


def _rows(
    found: dict[bytes, bytes], kind: type[Row], unreadable: list[Breach]
) -> Iterator[tuple[str, Row]]:
    for key, text in found.items():
        try:
            yield key.decode(), kind.decode(text.decode())
        except ValueError as error:
            unreadable.append(Breach(1, key.decode(), f"unreadable row: {error}"))


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _text(found: dict[bytes, Any]) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in found.items() if key != b"context"}
