"""What the API server sends, decoded into the fields that we use and nothing else.

One object that cannot be read never costs the others: it is handed on as a BadObject.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from autoscale_enforcer.cluster.kubernetes.failures import Status, read_status, refusal
from autoscale_enforcer.errors import ClusterUnavailable, ObjectError
from autoscale_enforcer.objects.decode import decode
from autoscale_enforcer.objects.shapes import KubeStruct, Metadata
from autoscale_enforcer.turns import Turns


class KubeObject(Protocol):
    """Any struct for an object of the API."""

    metadata: Metadata | None


READ_AT_ONCE = 4 << 20
"""Bytes of a page that are decoded in one go; 500 pods of 5 KiB take less, and some 4 ms."""

K = TypeVar("K", bound=KubeObject)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class BareObject(KubeStruct):
    """An object of which only the metadata are wanted."""

    metadata: Metadata | None = None


class Action(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    """The object is as it was last, with the version of its deletion."""


@dataclass(frozen=True, slots=True)
class Changed(Generic[T_co]):
    """One event of a watch."""

    action: Action
    object: T_co
    resource_version: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing happened up to this version."""

    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BadObject:
    """An object that cannot be read, with as much of it as can be; a name may be missing."""

    error: ObjectError
    action: Action | None = None
    """None where it stood in a list."""
    uid: str = ""
    namespace: str = ""
    name: str = ""
    resource_version: str = ""


WatchEvent = Changed[K] | Bookmark | BadObject


@dataclass(frozen=True, slots=True)
class Page(Generic[K]):
    """A part of a list."""

    items: list[K]
    bad: list[BadObject]
    resource_version: str
    """Of the whole list."""
    begins: bool
    """The first part: whatever came before counts no more, for the list had to begin again."""
    next_page: str = ""
    """What asks for the next part; empty: this was the last."""


@dataclass(slots=True)
class Listing(Generic[T]):
    """A whole list, at one version."""

    items: list[T] = field(default_factory=list)
    bad: list[BadObject] = field(default_factory=list)
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a POST or PATCH was answered; a refusal is an answer too."""

    status: int
    reason: str
    """Kubernetes' word for it, such as Conflict; empty where all went well."""
    message: str
    """In words."""
    body: bytes
    """The object, or the Status."""

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return 200 <= self.status < 300


class _ListMetadata(KubeStruct):
    resource_version: str | None = None
    next: str | None = msgspec.field(default=None, name="continue")


class ListBody(KubeStruct, Generic[T]):
    """A list; the objects of a `ListBody[Raw]` are still text."""

    metadata: _ListMetadata | None = None
    items: list[T] | None = None

    @property
    def resource_version(self) -> str:
        """The version at which it was taken."""
        return (self.metadata and self.metadata.resource_version) or ""

    @property
    def next_page(self) -> str:
        """What asks for the next page; empty: this was the last."""
        return (self.metadata and self.metadata.next) or ""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _AnyMetadata(KubeStruct):
    metadata: Any = None


def read_object(asked: str, body: bytes, kind: type[K]) -> K:
    """The object; raises ObjectError where it cannot be read, ClusterUnavailable where it is none.

    None is what has no metadata, such as a proxy's page: it tells nothing of the object, not even
    that it is there.
    """
    try:
        found = decode(body, kind)
    except ObjectError as error:
        if bad_object(body, error).uid:
            raise
        raise ClusterUnavailable(f"{asked}: the answer is no object: {error}") from error
    if found.metadata is None:
        raise ClusterUnavailable(f"{asked}: the answer is no object: it has no metadata")
    return found


async def read_page(asked: str, body: bytes, kind: type[K], *, begins: bool) -> Page[K]:
    """A part of a list; raises ClusterUnavailable where it is none."""
    found = _read_at_once(body, kind)
    if found is not None:
        page = Page(found.items or [], [], found.resource_version, begins, found.next_page)
    else:
        raw = _read_raw(asked, body)
        page = await read_items(raw.items or (), kind)
        page = replace(
            page, resource_version=raw.resource_version, begins=begins, next_page=raw.next_page
        )
    if not page.resource_version:
        # Else any other JSON would be a list of nothing, and all that is known gone.
        raise ClusterUnavailable(f"{asked}: the answer is no list: it has no resourceVersion")
    return page


def _read_at_once(body: bytes, kind: type[K]) -> ListBody[K] | None:
    """The list with its objects; None where one cannot be read, or where it would take too long."""
    if len(body) > READ_AT_ONCE:
        return None
    whole: type[ListBody[K]] = ListBody[kind]  # type: ignore[valid-type]
    try:
        return decode(body, whole)
    except ObjectError:
        return None


def _read_raw(asked: str, body: bytes) -> ListBody[msgspec.Raw]:
    try:
        return decode(body, ListBody[msgspec.Raw])
    except ObjectError as error:
        raise ClusterUnavailable(f"{asked}: the answer is no list: {error}") from error


async def read_items(items: Iterable[msgspec.Raw], kind: type[K]) -> Page[K]:
    """Each object on its own; other tasks run meanwhile."""
    page: Page[K] = Page([], [], "", begins=False)
    turns = Turns()
    for item in items:
        try:
            page.items.append(decode(item, kind))
        except ObjectError as error:
            page.bad.append(bad_object(item, error))
        await turns.pause()
    return page


def read_event(asked: str, line: bytes, kind: type[K]) -> WatchEvent[K]:
    """One line of a watch; raises ApiRefusal for an ERROR, ClusterUnavailable for no event."""
    try:
        event = decode(line, _Event)
    except ObjectError as error:
        raise ClusterUnavailable(f"{asked}: the line is no event: {error}") from error
    if event.type == "BOOKMARK":
        return Bookmark(_version(decode_or_nothing(event.object)))
    if event.type not in Action.__members__:
        status = read_status(event.object) if event.type == "ERROR" else Status()
        raise refusal(f"{asked}: event {event.type}", status.code or 0, status)
    action = Action(event.type)
    try:
        found = decode(event.object, kind)
    except ObjectError as error:
        return bad_object(event.object, error, action)
    return Changed(action, found, _version(found))


def decode_or_nothing(source: msgspec.Raw) -> BareObject:
    """The metadata; empty where they cannot be read."""
    try:
        return decode(source, BareObject)
    except ObjectError:
        return BareObject()


def bad_object(
    source: msgspec.Raw | bytes, error: ObjectError, action: Action | None = None
) -> BadObject:
    """What can still be told of an object that cannot be decoded."""
    try:
        metadata = decode(source, _AnyMetadata).metadata
    except ObjectError:
        metadata = None
    known = metadata if isinstance(metadata, dict) else {}

    def text(key: str) -> str:
        value = known.get(key)
        return value if isinstance(value, str) else ""

    return BadObject(
        error=error,
        action=action,
        uid=text("uid"),
        namespace=text("namespace"),
        name=text("name"),
        resource_version=text("resourceVersion"),
    )


def bad_version(metadata: Metadata | None, error: ObjectError, action: Action | None) -> BadObject:
    """An object that was decoded, and of which no sense can be made."""
    known = metadata or Metadata()
    return BadObject(
        error=error,
        action=action,
        uid=known.uid or "",
        namespace=known.namespace or "",
        name=known.name or "",
        resource_version=known.resource_version or "",
    )


def _version(found: KubeObject) -> str:
    return (found.metadata and found.metadata.resource_version) or ""
