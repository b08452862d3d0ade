"""Reads the Lua files as the contract tests compare them: headers, bodies, what a body names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from autoscale_enforcer.ledger.scripts import SHEBANG, included_names, load_scripts, scripts_folder

_CALL = re.compile(r"redis\.call\(\s*'([A-Z]+)'(?:\s*,\s*(keys\.\w+|\w+))?")


@dataclass(frozen=True, slots=True)
class LuaFile:
    """One file under lua/: a script, or an include."""

    name: str
    header: str
    body: str
    includes: tuple[str, ...]

    @property
    def quoted_words(self) -> set[str]:
        """Upper-case words in quotes that are no part of a Redis command."""
        return set(re.findall(r"'([A-Z][A-Z_]+)'", without_calls(self.body)))

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Each Redis command with its first argument, as it is written."""
        return _CALL.findall(self.body)

    @property
    def bind_block(self) -> str:
        """The first block of a script: what KEYS and ARGV are called."""
        return self.body.split("\n\n")[0]


def scripts() -> list[LuaFile]:
    """Every script."""
    return [_read(name) for name in load_scripts()]


def libraries() -> list[LuaFile]:
    """Every include."""
    return [_read(f"lib/{path.stem}") for path in sorted(scripts_folder().glob("lib/*.lua"))]


def with_includes(file: LuaFile) -> list[LuaFile]:
    """The file and all that it includes, includes of includes too."""
    found = {file.name: file}
    for name in file.includes:
        found |= {inner.name: inner for inner in with_includes(_read(f"lib/{name}"))}
    return list(found.values())


def bound_names(file: LuaFile) -> dict[str, str]:
    """`KEYS[1]` and so on to the name that the bind block gives it; `table.field` in a table."""
    found: dict[str, str] = {}
    for names, values in re.findall(
        r"^local ([\w, ]+) = ((?:.|\n(?=[ }]))+)", file.bind_block, re.MULTILINE
    ):
        for name, value in zip(names.split(", "), _items(values), strict=True):
            for field, source in re.findall(r"(?:(\w+) = )?\w*\(?((?:KEYS|ARGV)\[\d+\])", value):
                found[source] = f"{name}.{field}" if field else name
    return found


def without_calls(text: str) -> str:
    """The text with the arguments of each `redis.call` cut out."""
    while (start := text.find("redis.call(")) >= 0:
        depth, end = 1, start + len("redis.call(")
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        text = f"{text[:start]}CALL{text[end:]}"
    return text


def _items(values: str) -> list[str]:
    """Splits at commas that are in no bracket."""
    items, depth = [""], 0
    for char in values:
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(char, 0)
        if char == "," and depth == 0:
            items.append("")
        else:
            items[-1] += char
    return items


@cache
def _read(name: str) -> LuaFile:
    text = (scripts_folder() / f"{name}.lua").read_text().removeprefix(f"{SHEBANG}\n")
    rows = text.splitlines()
    head = next(i for i, row in enumerate(rows) if not row.startswith("--"))
    header = "\n".join(rows[:head])
    body = "\n".join(row for row in rows[head:] if not row.lstrip().startswith("--"))
    return LuaFile(name.removeprefix("lib/"), header, body, tuple(included_names(header)))
