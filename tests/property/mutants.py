"""Bugs planted in the Lua scripts, one at a time, by changing their text.

A write is dropped, doubled, or its sign turned; a check is dropped, or comes after the writes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autoscale_enforcer.ledger.scripts import Script, _load, included_names, scripts_folder

WRITES = (
    *("HSET", "HSETNX", "HDEL", "HINCRBY", "ZADD", "ZREM", "ZREMRANGEBYSCORE", "XADD"),
    *("UNLINK", "DEL", "RENAME", "PEXPIRE"),
)
WRITERS = (
    *("count_pod", "take_off", "put_on", "save_nodes", "save_pod", "journal_pod", "journal_node"),
    *("drop_pod", "drop_replaced", "release_pod", "set_charges", "set_amounts", "keep_blob"),
)
"""Includes that write, or change the sums and amounts that are written."""

_WRITE = re.compile(
    rf"redis\.call\(\s*'(?:{'|'.join(WRITES)})'|(?<!function )\b(?:{'|'.join(WRITERS)})\("
)
_SIGN = re.compile(r"(?<= )([+-])(?= )|(?<=, )(-?)(?=1\))")
_CONDITION = re.compile(r"^( *)(if|elseif) (.+) then\n(?P<body>(?:\1 +.*\n)+)", re.MULTILINE)
_BLOCK = re.compile(r"^( *)if .+?^\1end\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug. `file` without the folder and `.lua`; `text` is what was changed."""

    file: str
    how: str
    """dropped, doubled, sign turned, check dropped, check late."""
    text: str
    """The line that was changed, shortened to tell it from the others in its file."""
    number: int
    """Which of those with equal text, from 0."""
    source: str
    """The whole file, with the bug."""

    @property
    def title(self) -> str:
        """As it is called in NO_DIFFERENCE and where it is not caught."""
        which = f" #{self.number}" if self.number else ""
        return f"{self.file}: {self.how}: {self.text}{which}"


@cache
def all_mutants() -> list[Mutant]:
    """Every bug that can be planted, in the order of files and lines."""
    folder = scripts_folder()
    paths = [*sorted(folder.glob("*.lua")), *sorted((folder / "lib").glob("*.lua"))]
    return [mutant for path in paths for mutant in _numbered(path.stem, path.read_text())]


def _numbered(file: str, source: str) -> Iterator[Mutant]:
    seen: dict[tuple[str, str], int] = {}
    for how, text, changed in _mutations(source):
        number = seen.get((how, text), 0)
        seen[how, text] = number + 1
        yield Mutant(file, how, text, number, changed)


def _mutations(source: str) -> Iterator[tuple[str, str, str]]:
    """(how, what, the whole text with it)"""
    code = source.index("\nlocal ") + 1  # behind the header
    for start, end in _writes(source, code):
        call = source[start:end]
        is_statement = source[:start].rsplit("\n", 1)[-1].strip() == ""
        name = " ".join(call.split())[:60]
        if is_statement:
            yield "dropped", name, source[:start] + source[end:]
            yield "doubled", name, f"{source[:end]}; {call}{source[end:]}"
        else:
            yield "dropped", name, f"{source[:start]}1{source[end:]}"
            yield "doubled", name, f"{source[:start]}({call} and {call}){source[end:]}"
    for start, end, turned in _signs(source, code):
        yield "sign turned", _line(source, start), source[:start] + turned + source[end:]
    for check in _conditions(source, code):
        start, end = check.span(3)
        refuses = re.search(r"\breturn\b|\berror\(", check.group("body"))
        never = "false" if refuses else "true"
        yield "check dropped", _line(source, start), source[:start] + never + source[end:]
    yield from _late_checks(source, code)


def _writes(source: str, code: int) -> Iterator[tuple[int, int]]:
    for found in _WRITE.finditer(source, code):
        depth = 0
        for at in range(found.start(), len(source)):
            depth += {"(": 1, ")": -1}.get(source[at], 0)
            if depth == 0 and source[at] == ")":
                yield found.start(), at + 1
                break


def _conditions(source: str, at: int) -> Iterator[re.Match[str]]:
    """Each if and elseif, those inside of another included."""
    while found := _CONDITION.search(source, at):
        yield found
        at = found.start("body")


def _signs(source: str, code: int) -> Iterator[tuple[int, int, str]]:
    """Each plus and minus between two terms, and each 1 or -1 that is handed on as a sign."""
    for found in _SIGN.finditer(source, code):
        if source.rfind("--", source.rfind("\n", 0, found.start()), found.start()) >= 0:
            continue  # a comment
        if found.group(1):
            start, end = found.span(1)
            yield start, end, {"+": "-", "-": "+"}[found.group(1)]
        else:
            start, end = found.span(2)
            yield start, end, "" if found.group(2) else "-"


def _late_checks(source: str, code: int) -> Iterator[tuple[str, str, str]]:
    """Each check that stands before a write, moved to where the answer is given."""
    body = source[code:]
    indent = "" if "\nreturn " in body else "  "  # a script, or the function of an include
    last = body.rfind(f"\n{indent}return ")
    writes = [start for start, _ in _writes(source, code)]
    for block in _BLOCK.finditer(body):
        check = _CONDITION.match(block.group())
        is_check = block.group(1) == indent and check and "return" in check.group("body")
        if not is_check or last < block.end() or not any(w > code + block.end() for w in writes):
            continue
        late = (
            body[: block.start()] + body[block.end() : last + 1] + block.group() + body[last + 1 :]
        )
        yield "check late", _line(source, code + block.start()), source[:code] + late


def _line(source: str, at: int) -> str:
    start, end = source.rfind("\n", 0, at) + 1, source.find("\n", at)
    return source[start:end].strip()


class Nursery:
    """A folder of its own, from which the scripts are loaded with one bug at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lua"
        shutil.copytree(scripts_folder(), self.folder)
        self.sources = {path.stem: path.read_text() for path in self.folder.rglob("*.lua")}

    def scripts(self, mutant: Mutant) -> dict[str, Script]:
        """The scripts that have the bug, by name."""
        path = next(self.folder.rglob(f"{mutant.file}.lua"))
        path.write_text(mutant.source)
        try:
            infected = [
                p for p in self.folder.glob("*.lua") if mutant.file in self._closure(p.stem)
            ]
            return {p.stem: _load(p, shebang=True) for p in infected}
        finally:
            path.write_text(self.sources[mutant.file])

    def _closure(self, name: str) -> set[str]:
        names = {name}
        for inner in included_names(self.sources[name]):
            names |= self._closure(inner)
        return names
