"""Every kind of fault: how it begins, how it ends, and how its recovery is recognised.

A fault is made for one use. `begin`, then `end` after a while, then wait for `is_over`.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import redis
from typing_extensions import override

from tests.fault.kit.fleet import Serving
from tests.fault.kit.link import Link
from tests.fault.kit.redis_group import Member
from tests.fault.kit.stage import Stage

SKEW_SECONDS = 90


@dataclass(slots=True)
class Fault(ABC):
    """One thing that goes wrong."""

    name: str
    """Its kind, as in the table."""
    random: random.Random
    lasts: tuple[float, float] = (1.0, 4.0)
    """Seconds between which it ends."""
    needs_whole_group: bool = False
    """Takes a server or a majority away, so it waits until all are there."""

    @abstractmethod
    async def begin(self, stage: Stage) -> None:
        """Let it happen."""

    async def end(self) -> None:  # noqa: B027 - most end by themselves
        """Let it be over, as far as it does not end by itself."""

    async def is_over(self, stage: Stage) -> bool:
        """Nothing of it is left: replicas are ready, books compared, the cluster followed."""
        return await stage.is_well()


@dataclass(slots=True)
class LinkFault(Fault):
    """Something on the way from one replica, or from all of them."""

    to_api: bool = False
    break_it: Callable[[Link, random.Random], None] = field(default=lambda link, _: link.reset())
    links: list[Link] = field(default_factory=list)

    @override
    async def begin(self, stage: Stage) -> None:
        every = list(stage.fleet)
        victims = every if self.random.random() < 0.5 else [self.random.choice(every)]
        for each in victims:
            self.links += [each.api_link] if self.to_api else each.redis_side
        for link in self.links:
            self.break_it(link, self.random)

    @override
    async def end(self) -> None:
        for link in self.links:
            link.heal()


@dataclass(slots=True)
class ServingFault(Fault):
    """A replica of the service dies, or stands still with its connections open."""

    kills: bool = True
    victim: Serving | None = None

    @override
    async def begin(self, stage: Stage) -> None:
        self.victim = self.random.choice(list(stage.fleet))
        await asyncio.to_thread(
            self.victim.process.kill if self.kills else self.victim.process.pause
        )

    @override
    async def end(self) -> None:
        assert self.victim
        await asyncio.to_thread(self.victim.start if self.kills else self.victim.process.resume)


@dataclass(slots=True)
class MemberFault(Fault):
    """The same of a Redis or a Sentinel; a killed one comes back with what its disk has."""

    pick: str = "primary"
    kills: bool = True
    victim: Member | None = None

    @override
    async def begin(self, stage: Stage) -> None:
        if self.pick == "sentinel":
            self.victim = self.random.choice(stage.group.sentinels)
        else:
            primary = await stage.primary()
            others = stage.group.others(primary)
            self.victim = primary if self.pick == "primary" else self.random.choice(others)
        await asyncio.to_thread(self.victim.kill if self.kills else self.victim.pause)

    @override
    async def end(self) -> None:
        assert self.victim
        await asyncio.to_thread(self.victim.start if self.kills else self.victim.resume)


@dataclass(slots=True)
class Restart(Fault):
    """The primary is back before a Sentinel misses it; without its data, its replicas follow it
    into emptiness.
    """

    with_data: bool = True

    @override
    async def begin(self, stage: Stage) -> None:
        primary = await stage.primary()
        await asyncio.to_thread(self._restart, primary)

    def _restart(self, primary: Member) -> None:
        if self.with_data:
            primary.stop()
        else:
            primary.kill()
            primary.forget()
        primary.start()


@dataclass(slots=True)
class Order(Fault):
    """Something that one command does to the primary."""

    command: tuple[str, ...] = ()

    @override
    async def begin(self, stage: Stage) -> None:
        primary = await stage.primary()
        await asyncio.to_thread(_command, primary, *self.command)


@dataclass(slots=True)
class FullMemory(Fault):
    """The primary takes nothing in any more."""

    victim: Member | None = None

    @override
    async def begin(self, stage: Stage) -> None:
        self.victim = await stage.primary()
        await asyncio.to_thread(_command, self.victim, "CONFIG", "SET", "maxmemory", "1mb")

    @override
    async def end(self) -> None:
        assert self.victim
        await asyncio.to_thread(_command, self.victim, "CONFIG", "SET", "maxmemory", "0")


@dataclass(slots=True)
class ClockSkew(Fault):
    """A replica begins a life with another time of day; how fast time passes is the same."""

    victim: Serving | None = None

    @override
    async def begin(self, stage: Stage) -> None:
        self.victim = self.random.choice(list(stage.fleet))
        await asyncio.to_thread(self.victim.process.stop)
        sign = self.random.choice("+-")
        self.victim.start(skewed(f"{sign}{SKEW_SECONDS}s"))

    @override
    async def end(self) -> None:
        assert self.victim
        await asyncio.to_thread(self.victim.process.stop)
        self.victim.start()


@dataclass(slots=True)
class RollingUpdate(Fault):
    """A replica of the previous release in the place of one of ours, and back."""

    victim: Serving | None = None
    old: Serving | None = None

    @override
    async def begin(self, stage: Stage) -> None:
        self.victim = self.random.choice(list(stage.fleet))
        self.old = stage.previous
        await asyncio.to_thread(self.victim.process.stop)
        self.old.start()

    @override
    async def end(self) -> None:
        assert self.victim
        assert self.old
        self.victim.start()
        await asyncio.to_thread(self.old.process.stop)


def skewed(offset: str) -> dict[str, str]:
    """Variables under which a process has another time of day; FileNotFoundError without the
    library, which is in Debian's package faketime.
    """
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        raise FileNotFoundError("libfaketimeMT.so.1 is missing: install Debian's package faketime")
    return {
        "LD_PRELOAD": str(found[0]),
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def _command(server: Member, *words: str) -> None:
    with redis.Redis(port=server.port, socket_timeout=2) as client:
        client.execute_command(*words)


def _delay(link: Link, chance: random.Random) -> None:
    link.delay = chance.uniform(0.05, 0.6)


def _drop(link: Link, chance: random.Random) -> None:
    link.drop_share = chance.uniform(0.2, 1.0)


_ON_LINKS: dict[str, Callable[[Link, random.Random], None]] = {
    "delay": _delay,
    "replies dropped": _drop,
    "half-open": lambda link, _: link.half_open(),
    "reset": lambda link, _: link.reset(),
    "cut": lambda link, _: link.cut(),
}


def kinds(chance: random.Random) -> dict[str, Callable[[], Fault]]:
    """Every kind, by its name; each call makes one more fault of it."""
    made: dict[str, Callable[[], Fault]] = {}

    def add(kind: type[Fault], name: str, **given: object) -> None:
        made[name] = lambda: kind(name, chance, **given)  # type: ignore[arg-type]

    for what, break_it in _ON_LINKS.items():
        add(LinkFault, f"{what}, replica to Redis", break_it=break_it)
        add(LinkFault, f"{what}, replica to API", break_it=break_it, to_api=True)
    for kills, how in ((True, "SIGKILL"), (False, "SIGSTOP")):
        add(ServingFault, f"{how} of a replica", kills=kills)
        for pick, whom in (
            ("primary", "the primary"),
            ("replica", "a Redis replica"),
            ("sentinel", "a Sentinel"),
        ):
            add(
                MemberFault, f"{how} of {whom}",
                kills=kills, pick=pick, needs_whole_group=True, lasts=(3.0, 6.0),
            )  # fmt: skip
    add(Order, "SCRIPT FLUSH", command=("SCRIPT", "FLUSH"))
    add(FullMemory, "full memory")
    add(Order, "FLUSHALL", command=("FLUSHALL",))
    add(Restart, "restart of Redis with its data", needs_whole_group=True)
    add(
        Restart, "restart of Redis without its data",
        with_data=False, needs_whole_group=True,
    )  # fmt: skip
    add(ClockSkew, "clock skew of 90 s", lasts=(3.0, 6.0))
    add(RollingUpdate, "rolling update", lasts=(4.0, 8.0))
    return made
