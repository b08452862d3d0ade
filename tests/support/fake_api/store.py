"""Objects with versions, and the history that watches are served from.

Objects are kept as the JSON that a list holds, so that a page is one join.
"""

from __future__ import annotations

import asyncio
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from tests.support.fake_api import problems
from tests.support.fake_api.kinds import Kind

Json = dict[str, Any]
Key = str
"""`namespace/name`, or the name alone; in this order a list is sorted."""


@dataclass(frozen=True, slots=True)
class Happened:
    """One change: the object after it and before it, as JSON; a deleted one as it was last."""

    version: int
    action: str
    after: bytes
    before: bytes | None


@dataclass(slots=True)
class Table:
    """All objects of one kind."""

    kind: Kind
    rows: dict[Key, bytes] = field(default_factory=dict)
    history: list[Happened] = field(default_factory=list)
    forgotten: int = 0
    """The newest version of which the history no longer tells."""
    watchers: set[asyncio.Event] = field(default_factory=set)
    _sorted: list[Key] | None = None

    def sorted_keys(self) -> list[Key]:
        if self._sorted is None:
            self._sorted = sorted(self.rows)
        return self._sorted

    def put(self, key: Key, row: bytes | None) -> None:
        if row is None:
            del self.rows[key]
            self._sorted = None
            return
        if key not in self.rows:
            self._sorted = None
        self.rows[key] = row

    def since(self, version: int) -> list[Happened]:
        start = bisect_right(self.history, version, key=lambda each: each.version)
        return self.history[start:]

    def wake(self) -> None:
        for watcher in self.watchers:
            watcher.set()


class Store:
    """Everything the API server knows. Safe from one event loop only."""

    def __init__(self, kinds: Iterable[Kind], *, version: int = 1000) -> None:
        self.version = version
        """Of the last change of anything, as in etcd."""
        self.kinds = {kind.plural: kind for kind in kinds}
        self.tables = {plural: Table(kind) for plural, kind in self.kinds.items()}

    # Reading

    def get(self, plural: str, key: Key) -> Json:
        """The object; raises the 404."""
        table = self.tables[plural]
        if key not in table.rows:
            raise problems.not_found(table.kind, _name(key))
        return decoded(table.rows[key])

    def all(self, plural: str) -> Iterator[Json]:
        table = self.tables[plural]
        return (decoded(table.rows[key]) for key in table.sorted_keys())

    # Changing

    def create(self, plural: str, given: Json) -> Json:
        """Add an object; its UID may be given, so that tests can name it."""
        table = self.tables[plural]
        new = {key: value for key, value in given.items() if key not in ("kind", "apiVersion")}
        metadata = new["metadata"] = dict(new.get("metadata") or {})
        if table.kind.namespaced:
            metadata.setdefault("namespace", "default")
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", now_text())
        key = key_of(metadata)
        if key in table.rows:
            raise problems.already_exists(table.kind, metadata["name"])
        return self._write(table, key, new, "ADDED", None)

    def update(
        self, plural: str, key: Key, change: Callable[[Json], None], *, uid: str = "", rv: str = ""
    ) -> Json:
        """Change an object in place; a change that changes nothing makes no new version."""
        table, old = self.tables[plural], self.get(plural, key)
        self._check(table, key, old, uid, rv)
        new = decoded(table.rows[key])
        change(new)
        if new == old:
            return old
        return self._write(table, key, new, "MODIFIED", table.rows[key])

    def remove(self, plural: str, key: Key, *, uid: str = "", rv: str = "") -> Json:
        """Take an object away at once, as the kubelet does when a pod has ended."""
        table, old = self.tables[plural], self.get(plural, key)
        self._check(table, key, old, uid, rv)
        return self._write(table, key, old, "DELETED", table.rows[key])

    def load(self, plural: str, objects: Iterable[Json]) -> None:
        """Many objects before anybody watches: each with its version, without history."""
        for each in objects:
            self.create(plural, each)
        self.forget(plural)

    def forget(self, plural: str) -> None:
        """Compact: no watch can begin, and no page follow, before what is now."""
        table = self.tables[plural]
        table.history.clear()
        table.forgotten = self.version

    def trim(self, plural: str, *, keep: int) -> None:
        """Compact all but the newest changes, so many."""
        table = self.tables[plural]
        if len(table.history) > keep:
            table.forgotten = table.history[-keep - 1].version
            del table.history[:-keep]

    def pass_version(self, to: int) -> None:
        """Something happened that concerns none of our kinds."""
        self.version = max(self.version, to)

    def _write(self, table: Table, key: Key, new: Json, action: str, before: bytes | None) -> Json:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        row = msgspec.json.encode(new)
        table.put(key, None if action == "DELETED" else row)
        table.history.append(Happened(self.version, action, row, before))
        table.wake()
        return new

    @staticmethod
    def _check(table: Table, key: Key, old: Json, uid: str, rv: str) -> None:
        known = old["metadata"]
        for words, given, known_as in (
            ("UID", uid, known["uid"]),
            ("ResourceVersion", rv, known["resourceVersion"]),
        ):
            if given and given != known_as:
                raise problems.failed_precondition(
                    table.kind, key, _name(key), words, given, known_as
                )


def decoded(row: bytes) -> Json:
    found: Json = msgspec.json.decode(row)
    return found


def key_of(metadata: Json) -> Key:
    name: str = metadata["name"]
    namespace: str = metadata.get("namespace") or ""
    return f"{namespace}/{name}" if namespace else name


def now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _name(key: Key) -> str:
    return key.rpartition("/")[2]
