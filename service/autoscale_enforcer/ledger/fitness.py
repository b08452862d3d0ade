"""Is a server set up so that it keeps what it is told? Looked at on each one that is found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autoscale_enforcer.ledger.durability import Durability
from autoscale_enforcer.ledger.link import Wire
from autoscale_enforcer.ledger.packing import Command

OLDEST = (7, 0)
OLDEST_WITH_WAITAOF = (7, 2)

_CONFIG = ("appendfsync", "min-replicas-to-write")
_QUESTIONS: tuple[Command, ...] = (
    *(("INFO", section) for section in ("server", "memory", "persistence", "replication")),
    *(("CONFIG", "GET", name) for name in _CONFIG),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a server, and what to do, in words."""

    words: str
    is_refused: bool = False
    """Else only warned of: it may be meant so."""


async def findings(wire: Wire, durability: Durability) -> list[Finding]:
    """All that is wrong with this server for that durability."""
    answers = await wire.ask(*_QUESTIONS)
    return list(judge(_facts(answers), durability))


def judge(facts: Mapping[str, str], durability: Durability) -> Iterator[Finding]:
    """By fields of INFO and of CONFIG; what a user may not see is absent."""
    yield from _of_version(facts, durability)
    yield from _of_memory(facts)
    yield from _of_disk(facts, durability)
    yield from _of_replicas(facts, durability)


def _of_version(facts: Mapping[str, str], durability: Durability) -> Iterator[Finding]:
    text = facts.get("redis_version", "")
    version = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
    if not version:
        yield Finding("its version cannot be seen: 7.0 or newer is needed")
    elif version < OLDEST:
        yield Finding(f"it is Redis {text}: 7.0 or newer is needed", is_refused=True)
    elif durability is Durability.AOF and version < OLDEST_WITH_WAITAOF:
        yield Finding(f"it is Redis {text}: durability aof needs 7.2 or newer", is_refused=True)


def _of_memory(facts: Mapping[str, str]) -> Iterator[Finding]:
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return
    words = f"maxmemory-policy is {policy}, which forgets what was promised: make it noeviction"
    yield Finding(words, is_refused=facts.get("maxmemory", "0") != "0")


def _of_disk(facts: Mapping[str, str], durability: Durability) -> Iterator[Finding]:
    needs_disk = durability is Durability.AOF
    if facts.get("aof_enabled") == "0":
        words = "appendonly is no: a restart loses what was written since the last snapshot"
        yield Finding(f"{words}: make it yes", is_refused=needs_disk)
        return
    policy = facts.get("appendfsync")
    if needs_disk and policy is None:
        yield Finding("its appendfsync cannot be seen (CONFIG GET): it must be always")
    elif needs_disk and policy != "always":
        yield Finding(f"appendfsync is {policy}: durability aof needs always", is_refused=True)


def _of_replicas(facts: Mapping[str, str], durability: Durability) -> Iterator[Finding]:
    if durability is not Durability.REPLICA:
        return
    # INFO has this field only where min-replicas-to-write is set.
    wanted = facts.get("min-replicas-to-write", "1" if "min_slaves_good_slaves" in facts else "0")
    if wanted == "0":
        words = "min-replicas-to-write is 0: cut off from its replicas it goes on taking writes"
        yield Finding(f"{words} that nobody else has, until somebody waits for them")


def _facts(answers: list[Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for answer in answers:
        if isinstance(answer, bytes):
            found |= dict(re.findall(r"^([\w-]+):(.*?)\r?$", answer.decode(), re.MULTILINE))
        elif isinstance(answer, list):
            texts = [text.decode() for text in answer]
            found |= dict(zip(texts[::2], texts[1::2], strict=True))
    return found
