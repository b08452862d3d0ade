"""JSON written by people, read so that every problem is told at once, each with its JSON path.

A `Section` is one object of the document. It hands out fields through readers, small functions
that turn a value into what we work with or raise `ObjectError`; it notes what they refuse under
the field's path, and at the end every field that nobody asked for. `null` counts as absent, as it
does for the Go decoder that these files were written for.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import TypeVar

from autoscale_enforcer.errors import ConfigError, ObjectError

Value = TypeVar("Value")
Default = TypeVar("Default")

MAX_BYTES = 1 << 20
"""What a ConfigMap can hold (1 MiB); more was never a config."""

ROOT = "$"
"""The path of the document itself."""

MAX_PROBLEMS = 100
"""So many are told at most; whoever has more wrote something else than a config."""

_DEEPEST = 32
"""Objects and lists within each other; the deepest published format has 5."""

_LONGEST_NUMBER = 64
"""Digits of a whole number that we still convert; the time this takes grows with their square."""

_LONGEST_KEY = 80
"""Characters of a key that are still repeated to people."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class JsonObject(dict[str, object]):
    """A decoded object that remembers which keys were written more than once."""

    repeated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _NotANumber:
    """Stands where the text has a number that is none: NaN, Infinity, or beyond all bounds."""

    text: str


def path_to(parent: str, key: str) -> str:
    """The path of a field of the object at `parent`."""
    if not _PLAIN_KEY.fullmatch(key) or len(key) > _LONGEST_KEY:
        return f"{'' if parent == ROOT else parent}[{json.dumps(key[:_LONGEST_KEY])}]"
    return key if parent == ROOT else f"{parent}.{key}"


def kind_of(value: object) -> str:
    """What people call a JSON value of this type."""
    kinds = {bool: "true or false", str: "a string", int: "a number", float: "a number"}
    kinds |= {list: "a list", JsonObject: "an object", type(None): "null"}
    return kinds.get(type(value), "a number")


class Section:
    """One object of a document, with the problems found in the whole document so far."""

    def __init__(self, value: object, *, path: str, problems: list[str]) -> None:
        self.path = path
        self._problems = problems
        self._asked: set[str] = set()
        self._is_object = isinstance(value, JsonObject)
        self._fields = value if isinstance(value, JsonObject) else JsonObject()
        if not isinstance(value, JsonObject | _NotANumber):
            problems.append(f"{path}: must be an object, not {kind_of(value)}")

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._fields.get(name) is not None

    def refuse(self, name: str, reason: str) -> None:
        """Note what is wrong with a field."""
        self._problems.append(f"{path_to(self.path, name)}: {reason}")

    def take(self, name: str, read: Callable[[object], Value], default: Default) -> Value | Default:
        """The field as `read` makes it; `default` where it is absent or was refused."""
        self._asked.add(name)
        value = self._fields.get(name)
        if value is None:
            return default
        return self._read(path_to(self.path, name), value, read, default)

    def need(self, name: str, read: Callable[[object], Value], stand_in: Value) -> Value:
        """Like `take`, for a field that must be there; `stand_in` lets the reading go on."""
        self._require(name)
        return self.take(name, read, stand_in)

    def section(self, name: str, *, required: bool = False) -> Section:
        """The object in a field; one without fields where it is absent or something else."""
        self._asked.add(name)
        if required:
            self._require(name)
        value = self._fields[name] if self.has(name) else JsonObject()
        return Section(value, path=path_to(self.path, name), problems=self._problems)

    def sections(self, name: str) -> list[Section]:
        """The objects of a list."""
        path = path_to(self.path, name)
        return [
            Section(item, path=f"{path}[{index}]", problems=self._problems)
            for index, item in enumerate(self._list(name))
        ]

    def each(
        self, name: str, read: Callable[[object], Value], *, required: bool = False
    ) -> list[Value]:
        """The items of a list as `read` makes them, without those that it refuses."""
        if required:
            self._require(name)
            if self._fields.get(name) == []:
                self.refuse(name, "must not be empty")
        path = path_to(self.path, name)
        values = (
            self._read(f"{path}[{index}]", item, read, None)
            for index, item in enumerate(self._list(name))
        )
        return [value for value in values if value is not None]

    def pairs(
        self, read_key: Callable[[object], str], read: Callable[[object], Value]
    ) -> dict[str, Value]:
        """Every field of this object, where the names are up to whoever writes it."""
        found = {}
        for key, item in self._fields.items():
            path = path_to(self.path, key)
            self._asked.add(key)
            self._read(path, key, read_key, None)
            value = self._read(path, item, read, None)
            if value is not None:
                found[key] = value
        return found

    def present(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of these fields that are there, which also makes them known."""
        names = set(names)
        self._asked |= names
        return tuple(name for name in self._fields if name in names)

    def finish(self, belongs: Mapping[str, str] | None = None) -> None:
        """Note every field that nobody asked for; `belongs` says of some where they are at home."""
        for name in self._fields:
            if name not in self._asked and len(self._problems) < MAX_PROBLEMS:
                self.refuse(name, self._why_unknown(name, belongs or {}))

    def _require(self, name: str) -> None:
        if self._is_object and not self.has(name):
            self.refuse(name, "is missing")

    def _why_unknown(self, name: str, belongs: Mapping[str, str]) -> str:
        if name in belongs:
            return f"is a field of {belongs[name]}"
        close = get_close_matches(name[:_LONGEST_KEY], sorted(self._asked), n=1)
        return f"unknown field; did you mean {close[0]}?" if close else "unknown field"

    def _list(self, name: str) -> list[object]:
        return self.take(name, _list, [])

    def _read(
        self, path: str, value: object, read: Callable[[object], Value], default: Default
    ) -> Value | Default:
        if isinstance(value, _NotANumber):  # noted when the document was read
            return default
        try:
            return read(value)
        except ObjectError as error:
            self._problems.append(str(error.under(path)))
            return default


def read_document(content: bytes) -> tuple[Section, list[str]]:
    """The document's top object, and the list that gathers every problem in it.

    Repeated keys and numbers that are none are in that list already. Raises ConfigError where the
    content is no JSON object at all, for then there is nothing more to be told.
    """
    if len(content) > MAX_BYTES:
        raise ConfigError([f"{ROOT}: is larger than 1 MiB, which is what a ConfigMap can hold"])
    if not content.strip():
        raise ConfigError([f"{ROOT}: is empty"])
    document = _decode(content)
    if not isinstance(document, JsonObject):
        raise ConfigError([f"{ROOT}: must be an object, not {kind_of(document)}"])
    problems = list(islice(_flaws(document), MAX_PROBLEMS))
    return Section(document, path=ROOT, problems=problems), problems


def _decode(content: bytes) -> object:
    try:
        return json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_NotANumber,
            parse_float=_fraction,
            parse_int=_whole,
        )
    except UnicodeDecodeError as error:
        raise ConfigError([f"{ROOT}: is not UTF-8 text (byte {error.start})"]) from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError([f"{ROOT}: is not JSON: {error.msg} ({where})"]) from error
    except RecursionError as error:
        raise ConfigError([f"{ROOT}: is nested too deeply"]) from error


def _object(pairs: list[tuple[str, object]]) -> JsonObject:
    found = JsonObject(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        found.repeated = tuple(key for key, count in counts.items() if count > 1)
    return found


def _fraction(text: str) -> float | _NotANumber:
    value = float(text)
    return value if math.isfinite(value) else _NotANumber(text)


def _whole(text: str) -> int | _NotANumber:
    return int(text) if len(text) <= _LONGEST_NUMBER else _NotANumber(text)


def _flaws(value: object, path: str = ROOT, depth: int = 0) -> Iterator[str]:
    """What is wrong wherever it stands, unused fields included."""
    if isinstance(value, _NotANumber):
        yield f"{path}: {value.text[:_LONGEST_KEY]} is not a number that can be used"
    elif isinstance(value, JsonObject | list) and depth == _DEEPEST:
        yield f"{path}: is nested too deeply"
    elif isinstance(value, JsonObject):
        yield from (f"{path_to(path, key)}: is there more than once" for key in value.repeated)
        for key, item in value.items():
            yield from _flaws(item, path_to(path, key), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _flaws(item, f"{path}[{index}]", depth + 1)


def _list(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    raise ObjectError("", f"must be a list, not {kind_of(value)}")
