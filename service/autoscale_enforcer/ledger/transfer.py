"""The whole ledger out of Redis and back, as a msgpack file for operators."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgpack

from autoscale_enforcer.errors import ServiceError
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.decode import PARTS, add_part
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Keep, Lead
from autoscale_enforcer.ledger.reading import read_books
from autoscale_enforcer.ledger.schema import SCHEMA, mismatch
from autoscale_enforcer.ledger.verify import Books, breaches
from autoscale_enforcer.model.rows import NodeRow, PodRow

FORMAT = "autoscale-enforcer books 1"
_CHUNK = 500
_LEASE = timedelta(seconds=30)


class ImportRefused(ServiceError):
    """The file was not taken; the ledger is as it was."""


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """What an import put into the ledger."""

    nodes: int
    pods: int


async def export_books(ledger: Ledger) -> bytes:
    """The whole ledger as a msgpack file; LedgerUnavailable where none is built."""
    books = await read_books(ledger, blobs=True)
    content: dict[str, dict[Any, Any]] = {
        "meta": books.meta,
        "nodes": {name: row.encode() for name, row in books.nodes.items()},
        "pods": {uid: row.encode() for uid, row in books.pods.items()},
        "names": books.names,
        "facts": books.blobs,
        "changes": books.changes,
        "deadlines": books.deadlines,
        "gone": books.gone,
    }
    as_bytes = {part: {_raw(k): _raw(v) for k, v in content[part].items()} for part in PARTS}
    packed: bytes = msgpack.packb({"format": FORMAT, **as_bytes})
    return packed


def _raw(value: str | int | bytes) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


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
        books = Books()
        for part in PARTS if known else ():
            add_part(books, part, file[part])
    except (ValueError, KeyError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise ImportRefused(f"no export of autoscale-enforcer: {error!r}") from error
    if not known:
        raise ImportRefused(f"an export of another format: {file['format']!r}")
    if wrong := breaches(books):
        raise ImportRefused(f"the books in the file do not add up: {wrong[0]}")
    return books
