"""Loads the Lua scripts: a script's header is data, and what it includes is put before its body.

Used by the ledger and by the contract tests, nobody else.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autoscale_enforcer.errors import ScriptContractError

SHEBANG = "#!lua"
_KEY = re.compile(r"^-- KEYS\[(\d+)\] +(\w+)\s+(hash|zset|string|stream)\s+(r|w|rw)\b")
_ARG = re.compile(r"^-- ARGV\[(\d+)\] +(\w+)\s+(str|int)\b")
_WORD = re.compile(r"^--   ([A-Z][A-Z_]+)\b")
_INCLUDE = re.compile(r"^-- Include:(.*(?:\n--   .*)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script ready to run: `text` is what Redis gets, the rest is what its header says."""

    name: str
    text: str
    sha: str
    key_names: tuple[str, ...]
    arg_names: tuple[str, ...]
    words: frozenset[str]
    """Every first item that an answer may have."""

    def arguments(self, given: dict[str, str | int | bytes]) -> list[str | int | bytes]:
        """The ARGV list; ScriptContractError where the names are not those of the header."""
        try:
            ordered = [given[name] for name in self.arg_names]
        except KeyError:
            ordered = []
        if len(ordered) == len(given):
            return ordered
        wrong = sorted(given.keys() ^ set(self.arg_names))
        raise ScriptContractError(f"{self.name}: arguments do not match the header: {wrong}")


def scripts_folder() -> Path:
    """Where the scripts are: beside the package in a wheel, at the top of a checkout."""
    package = Path(__file__).resolve().parent.parent
    shipped = package / "lua"
    return shipped if shipped.is_dir() else package.parent.parent / "lua"


@cache
def load_scripts(*, shebang: bool = True) -> dict[str, Script]:
    """Every script by name. Without `shebang` for fakeredis, which cannot read that line."""
    folder = scripts_folder()
    scripts = {path.stem: _load(path, shebang=shebang) for path in sorted(folder.glob("*.lua"))}
    if not scripts:
        raise ScriptContractError(f"no scripts in {folder}")
    return scripts


def included_names(text: str) -> list[str]:
    """What a header's Include line lists."""
    found = _INCLUDE.search(text)
    return re.findall(r"\w+", found.group(1)) if found else []


def _load(path: Path, *, shebang: bool) -> Script:
    source = path.read_text()
    first, _, body = source.partition("\n")
    if first != SHEBANG:
        raise ScriptContractError(f"{path.name}: line 1 must be {SHEBANG}")
    header = [line for line in body.splitlines() if line.startswith("--")]
    keys = _numbered(path, _KEY, header)
    args = _numbered(path, _ARG, header)
    words = frozenset(m.group(1) for line in header if (m := _WORD.match(line)))
    libraries = [_code(text) for text in _with_includes(path.parent / "lib", source)]
    text = "\n".join([*([SHEBANG] if shebang else []), *libraries, _code(body), ""])
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(path.stem, text, sha, keys, args, words)


def _numbered(path: Path, pattern: re.Pattern[str], header: list[str]) -> tuple[str, ...]:
    found = [m for line in header if (m := pattern.match(line))]
    if [int(m.group(1)) for m in found] != list(range(1, len(found) + 1)):
        raise ScriptContractError(f"{path.name}: numbers in the header are not 1, 2, 3, …")
    return tuple(m.group(2) for m in found)


def _with_includes(folder: Path, source: str) -> list[str]:
    """Each included file once, what it includes itself before it."""
    ordered: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in ordered:
            return
        text = (folder / f"{name}.lua").read_text()
        for inner in included_names(text):
            visit(inner)
        ordered[name] = text

    for name in included_names(source):
        visit(name)
    return list(ordered.values())


def _code(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
