"""A ledger's keys on a real server: steps go through the scripts, what they left is read back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import redis
from redis.client import Pipeline

from autoscale_enforcer.ledger.journal import JournalEntry
from autoscale_enforcer.ledger.keys import BOOKS, Keys
from autoscale_enforcer.ledger.scripts import SHEBANG, Script, load_scripts
from autoscale_enforcer.ledger.verify import Books as Found
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import NodeRow, PodRow
from tests.property.story import Step

CLOCK = "clock"
"""The key that says what time it is, for scripts with a `fake_clock`."""

ENTRIES = 12
"""Journal entries that are read back: more than one step can write."""

_FAKE_CLOCK = f"""
local redis = (function(server)
  return setmetatable({{call = function(command, ...)
    if command ~= 'TIME' then
      return server.call(command, ...)
    end
    local now = server.call('GET', '{CLOCK}')
    return {{string.sub(now, 1, -7), string.sub(now, -6)}}
  end}}, {{__index = server}})
end)(redis)
"""


_LOSE_A_ROW = """
local uids = redis.call('HKEYS', KEYS[1])
table.sort(uids)
return redis.call('HDEL', KEYS[1], uids[1])
"""


_DRIFT = """
local names = redis.call('HKEYS', KEYS[1])
table.sort(names)
if not names[1] then
  return
end
local fields = {}
for field in string.gmatch(redis.call('HGET', KEYS[1], names[1]), '%S+') do
  fields[#fields + 1] = field
end
for i = 8, 20 do
  fields[i] = string.format('%d', fields[i] + 1)
end
redis.call('HSET', KEYS[1], names[1], table.concat(fields, ' '))
"""
"""All of a node's sums, from `reserved_cpu` to `heard`."""


_TURN_NEWER = """
local is_newer = redis.call('HGET', KEYS[1], 'schema') == '2'
return redis.call('HSET', KEYS[1], 'schema', is_newer and 1 or 2)
"""

_MAKE_OLDER = """
if redis.call('HEXISTS', KEYS[1], 'epoch') == 0 then
  return
end
redis.call('HSET', KEYS[1], 'schema', 0)
for _, uid in ipairs(redis.call('HKEYS', KEYS[2])) do
  local row = string.gsub(redis.call('HGET', KEYS[2], uid), ' %S+$', '')
  redis.call('HSET', KEYS[2], uid, row)
end
"""
"""Pods as an older release had them, without a stamp, which is the last field."""


def with_fake_clock(script: Script) -> Script:
    """The same script, to which the server's clock is what the key CLOCK says, in microseconds."""
    text = f"{SHEBANG}{_FAKE_CLOCK}{script.text.removeprefix(SHEBANG)}"
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return replace(script, text=text, sha=sha)


_READ_ALL = """
  local hash = function (key) return redis.call('HGETALL', key) end
  local zset = function (key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  return {
    hash(KEYS[1]), hash(KEYS[2]), hash(KEYS[3]), hash(KEYS[4]),
    zset(KEYS[5]), zset(KEYS[6]), zset(KEYS[7]), hash(KEYS[8]),
    redis.call('XREVRANGE', KEYS[9], '+', '-', 'COUNT', ARGV[1]),
  }
"""
"""Every one of BOOKS, at one moment, the journal newest first."""


@dataclass(slots=True)
class Keyspace:
    """What one step left behind."""

    live: Found
    building: Found
    journal: list[tuple[JournalEntry, bytes]] = field(default_factory=list)
    """New entries of the live journal, oldest first, with their context."""
    building_entries: int = 0
    lease: dict[str, str] = field(default_factory=dict)
    lease_ms: int = 0
    bindings: dict[str, str] = field(default_factory=dict)
    freezes: dict[str, str] = field(default_factory=dict)
    compare: dict[str, str] = field(default_factory=dict)


class Scripted:
    """The scripts over a server of their own. `scripts` may be any kin of `load_scripts()`."""

    def __init__(self, client: redis.Redis, scripts: Mapping[str, Script] | None = None) -> None:
        self.client, self.keys = client, Keys("property")
        self.scripts = scripts or {n: with_fake_clock(s) for n, s in load_scripts().items()}
        for script in self.scripts.values():
            client.script_load(script.text)
        self._reader: str = client.script_load(_READ_ALL)
        self.reset()

    def reset(self) -> None:
        """Empty keys, as before the first step."""
        self.client.flushall()
        self._last_entry = b""
        self._beside, self._beside_entries = Found(), 0

    def now(self) -> int:
        """The server's own time, in microseconds."""
        seconds, microseconds = self.client.time()
        return int(seconds) * 1_000_000 + int(microseconds)

    def do(self, step: Step, now: int) -> tuple[list[Any], Keyspace]:
        """The script's answer, and everything in the keys afterwards."""
        return next(self.do_all([(step, now)]))

    def do_all(self, timed: Sequence[tuple[Step, int]]) -> Iterator[tuple[list[Any], Keyspace]]:
        """The same for each step, sent in one go: for those who know beforehand what comes."""
        pipe = self.client.pipeline(transaction=False)
        for step, now in timed:
            self._queue(pipe, step, now)
            self._queue_reads(pipe, step)
        answers = iter(pipe.execute(raise_on_error=False))
        for step, _ in timed:
            next(answers)  # of the clock
            answer = next(answers)
            if isinstance(answer, redis.ResponseError):
                answer = [b"ERROR", str(answer).encode()]
            yield (answer if isinstance(answer, list) else []), self._keyspace(answers, step)

    def _queue(self, pipe: Pipeline, step: Step, now: int) -> None:
        pipe.set(CLOCK, now)
        match step.script:
            case "promotion":
                pipe.execute_command("DEBUG", "CHANGE-REPL-ID")  # type: ignore[no-untyped-call]
            case "lease_end":
                pipe.delete(self.keys.key("lease"))
            case "loss":
                pipe.flushall()
            case "newer":
                pipe.eval(_TURN_NEWER, 1, self.keys.key("meta"))
            case "older":
                pipe.eval(_MAKE_OLDER, 2, *map(self.keys.key, ("meta", "pods")))
            case "row_loss":
                pipe.eval(_LOSE_A_ROW, 1, self.keys.key("pods"))
            case "drift":
                pipe.eval(_DRIFT, 1, self.keys.key("nodes"))
            case name:
                script = self.scripts[name]
                keys = self.keys.keys(script.key_names, building=step.building)
                pipe.evalsha(script.sha, len(keys), *keys, *script.arguments(step.given))

    def _queue_reads(self, pipe: Pipeline, step: Step) -> None:
        for building in (False, True) if _is_beside(step) else (False,):
            keys = self.keys.keys(BOOKS, building=building)
            pipe.evalsha(self._reader, len(keys), *keys, ENTRIES)
        pipe.hgetall(self.keys.key("lease"))
        pipe.pttl(self.keys.key("lease"))
        for key in ("bindings", "freezes", "compare"):
            pipe.hgetall(self.keys.key(key))

    def _keyspace(self, answers: Iterator[Any], step: Step) -> Keyspace:
        live = next(answers)
        if _is_beside(step):
            beside = next(answers)
            self._beside_entries, self._beside = len(beside.pop()), _books(beside)
        journal = list(self._new_entries(live.pop()))
        found = _books(live)
        found.journal = [entry for entry, _ in journal]
        return Keyspace(
            live=found,
            building=self._beside,
            journal=journal,
            building_entries=self._beside_entries,
            lease=_text(next(answers)),
            lease_ms=next(answers),
            bindings=_text(next(answers)),
            freezes=_text(next(answers)),
            compare=_text(next(answers)),
        )

    def _new_entries(self, newest: list[Any]) -> Iterator[tuple[JournalEntry, bytes]]:
        fresh = []
        for number, flat in newest:
            if number == self._last_entry:
                break
            fresh.append(_pairs(flat))
        self._last_entry = newest[0][0] if newest else b""
        for fields in reversed(fresh):
            context = fields.pop(b"context")
            yield JournalEntry.decode(_text(fields)), context


def _is_beside(step: Step) -> bool:
    """The step may touch the keys beside the books: no other script is given them."""
    loads = ("begin_build", "load_row", "load_pods", "publish_build", "loss")
    return step.building or step.script in loads


def _books(parts: list[Any]) -> Found:
    """As `_READ_ALL` gives them, the journal apart."""
    nodes, pods, names, facts, changes, deadlines, gone, meta = parts
    return Found(
        meta=_text(_pairs(meta)),
        nodes={NodeName(k): NodeRow.decode(v) for k, v in _text(_pairs(nodes)).items()},
        pods={PodUid(k): PodRow.decode(v) for k, v in _pod_rows(meta, pods).items()},
        names={PodName(k): PodUid(v) for k, v in _text(_pairs(names)).items()},
        blobs={k.decode(): v for k, v in _pairs(facts).items()},
        changes={NodeName(k): int(float(v)) for k, v in _text(_pairs(changes)).items()},
        deadlines={PodUid(k): int(float(v)) for k, v in _text(_pairs(deadlines)).items()},
        gone={k: int(float(v)) for k, v in _text(_pairs(gone)).items()},
    )


def _pod_rows(meta: list[bytes], flat: list[bytes]) -> dict[str, str]:
    """With the stamp that an older release's rows lack."""
    rows = _text(_pairs(flat))
    if _pairs(meta).get(b"schema") == b"0":
        return {uid: f"{row} 0" for uid, row in rows.items()}
    return rows


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _text(found: Mapping[bytes, bytes]) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in found.items()}
