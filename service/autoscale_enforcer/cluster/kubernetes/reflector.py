"""Follows one kind of object: a list, then a watch, for as long as it runs.

What holds: every change reaches the sink, or stands in a later list; after a gap there is exactly
one list, which is live and never from a cache; the version to go on from is the newest that a
list, an event or a bookmark has given, and never an older one. Where watches from that version are
refused again and again there is a list, too.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

from autoscale_enforcer.cluster.kubernetes.answers import (
    BadObject,
    Bookmark,
    Changed,
    K,
    WatchEvent,
    bad_version,
)
from autoscale_enforcer.cluster.kubernetes.client import PAGE_SIZE, KubeApi
from autoscale_enforcer.cluster.kubernetes.failures import ApiRefusal, Expired, NotServed
from autoscale_enforcer.cluster.kubernetes.lists import drop, read_whole
from autoscale_enforcer.errors import ClusterUnavailable, ObjectError
from autoscale_enforcer.turns import FullCollections, Turns

log = logging.getLogger(__name__)

_BUSY = frozenset({429, 503, 504})
"""Status of an API server that wants to be left alone: a list would be more work for it."""

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Sink(Protocol[T_contra]):
    """Who is told. Each call is waited for, and what it raises ends the reflector's run."""

    async def replace(self, items: Sequence[T_contra], resource_version: str) -> None:
        """All there is at this version: what is not in it is gone, or was bad just before.

        An object may stand under a known name with another UID; the older one is gone then. The
        version may be below an earlier one, where the API itself went back. `items` is emptied
        afterwards.
        """
        ...

    async def apply(self, event: Changed[T_contra]) -> None:
        """One change. After a cut, one that was told already may come again."""
        ...

    async def bad(self, found: BadObject) -> None:
        """An object that cannot be read: in an event, or in the list that `replace` brings next."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorSettings:
    """How patiently one kind of object is followed."""

    watch_lasts: timedelta = timedelta(seconds=120)
    """What the API server is asked for. Up to a quarter is added, so that watches do not all end
    together; a silent one is given up `ApiSettings.watch_slack` later."""
    pause: timedelta = timedelta(seconds=1)
    """From the beginning of a watch to the next, and the first of the growing pauses after failures
    and empty watches."""
    longest_pause: timedelta = timedelta(seconds=30)
    """What those grow to; up to half is added as jitter."""
    list_after: int = 3
    """Watches from one version that are refused in a row, after which there is a list. Not where
    the API server says that it is busy."""
    list_every: timedelta | None = None
    """There is a list before the first watch after so long: an API server that was set back to an
    older state may leave changes out of a watch and never say so. None: somebody else compares."""
    page_size: int = PAGE_SIZE
    may_be_absent: bool = False
    """The kind belongs to a CRD: a cluster that does not serve it has no such objects."""
    absent_for: timedelta = timedelta(seconds=60)
    """After this the cluster is asked for such a kind again."""


class Reflector(Generic[K, T]):
    """Follows what one path lists; `read` makes of each object what the sink takes."""

    def __init__(
        self,
        api: KubeApi,
        *,
        path: str,
        kind: type[K],
        read: Callable[[K], T],
        sink: Sink[T],
        settings: ReflectorSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._path, self._kind = api, path, kind
        self._read, self._sink, self._clock = read, sink, clock
        self._settings = settings or ReflectorSettings()
        self._heard_at = clock()
        self._asked_at = clock()
        self._is_heard = False
        self._fruitless = 0
        self._refused = ("", 0)
        self._is_doubted = False
        self._listed_at = clock()
        self._lists = self._watches = 0
        self.version = ""
        """To go on from; empty: a list is due."""
        self.synced = asyncio.Event()
        """Set once the first list is with the sink."""
        self.bad_objects = 0

    @property
    def relists(self) -> int:
        """Lists begun after the first."""
        return max(0, self._lists - 1)

    @property
    def restarts(self) -> int:
        """Watches begun after the first."""
        return max(0, self._watches - 1)

    @property
    def age_of_last_event(self) -> float:
        """Seconds since the API server last proved that we hear it.

        By an event, a bookmark, a page of a list, or a quiet watch that lasted as it was asked to.
        A list that refused watches have led to proves nothing: who can only list does not follow.
        """
        return self._clock() - self._heard_at

    async def run(self) -> None:
        """Follow until cancelled.

        Raises what the sink raises; run again it begins with a list, where all that was missed
        stands. A ClusterUnavailable of the sink counts as a failed watch: it is told again.
        """
        self.version = ""
        while True:
            try:
                pause = await self._list_and_watch()
            except ClusterUnavailable as error:
                pause = await self._failed(error)
            await asyncio.sleep(pause)

    async def _list_and_watch(self) -> float:
        """One list, if one is due, and one watch to its end; how long to pause then."""
        self._asked_at, self._is_heard = self._clock(), False
        every = self._settings.list_every
        if every and self._clock() - self._listed_at >= every.total_seconds():
            self.version = ""
        if not self.version:
            with FullCollections.held_off():
                await self._list()
        self._asked_at = self._clock()
        await self._watch()
        self._refused = ("", 0)
        if self._clock() - self._asked_at >= self._settings.watch_lasts.total_seconds() / 2:
            self._hear()
        return self._pause()

    async def _list(self) -> None:
        self._lists += 1
        listing = await read_whole(
            self._api,
            self._path,
            self._kind,
            self._read,
            page_size=self._settings.page_size,
            on_page=self._hear_page,
        )
        for found in listing.bad:
            await self._report(found)
        await self._sink.replace(listing.items, listing.resource_version)
        self.version, self._refused = listing.resource_version, ("", 0)
        self._listed_at = self._clock()
        self.synced.set()
        await drop(listing)

    def _hear_page(self) -> None:
        if not self._is_doubted:
            self._heard_at = self._clock()

    async def _watch(self) -> None:
        self._watches += 1
        lasts = self._settings.watch_lasts * random.uniform(1, 1.25)  # noqa: S311 - jitter
        events = self._api.watch(self._path, self._kind, resource_version=self.version, lasts=lasts)
        turns = Turns()
        async with aclosing(events):
            async for event in events:
                self._hear()
                await self._take(event)
                # Not before the sink has it: what it refuses is told again.
                self.version = latest(self.version, event.resource_version)
                await turns.pause()

    async def _take(self, event: WatchEvent[K]) -> None:
        if isinstance(event, Bookmark):
            return
        if isinstance(event, BadObject):
            await self._report(event)
            return
        try:
            read = self._read(event.object)
        except ObjectError as error:
            await self._report(bad_version(event.object.metadata, error, event.action))
        else:
            await self._sink.apply(Changed(event.action, read, event.resource_version))

    async def _report(self, found: BadObject) -> None:
        self.bad_objects += 1
        log.warning("%s: %s/%s: %s", self._path, found.namespace, found.name, found.error)
        await self._sink.bad(found)

    def _hear(self) -> None:
        self._heard_at, self._is_heard, self._is_doubted = self._clock(), True, False

    async def _failed(self, error: ClusterUnavailable) -> float:
        if isinstance(error, Expired | NotServed):
            self.version = ""
        elif self._is_stuck(error):
            self.version, self._is_doubted = "", True
        if isinstance(error, NotServed) and self._settings.may_be_absent:
            self._hear()
            await self._sink.replace((), "")
            self.synced.set()
            return self._settings.absent_for.total_seconds()
        log.warning("%s is asked again: %s", self._path, error)
        retry_after = error.retry_after if isinstance(error, ApiRefusal) else 0
        return max(self._pause(), retry_after)

    def _is_stuck(self, error: ClusterUnavailable) -> bool:
        """The API server answers, and goes on to refuse every watch from this version."""
        if not isinstance(error, ApiRefusal) or error.status in _BUSY or not self.version:
            return False
        known, times = self._refused
        self._refused = (self.version, times + 1 if known == self.version else 1)
        return self._refused[1] >= self._settings.list_after

    def _pause(self) -> float:
        """At most one watch in a `pause`; longer each time where nothing is heard between them."""
        first, longest = self._settings.pause, self._settings.longest_pause
        if self._is_heard:
            self._fruitless = 0
        else:
            self._fruitless = min(self._fruitless + 1, 16)
        grown = min(longest, first * (1 << max(0, self._fruitless - 1)))
        pause = grown.total_seconds() * random.uniform(1, 1.5)  # noqa: S311 - jitter
        return max(0.0, pause - (self._clock() - self._asked_at))


def latest(known: str, given: str) -> str:
    """The newer of two resourceVersions; one that is not a number, or none known, gives way."""
    if not given or (known.isdigit() and given.isdigit() and int(given) < int(known)):
        return known
    return given
