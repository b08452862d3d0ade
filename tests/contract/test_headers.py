"""A script's header is data: what it says is what the body does."""

from __future__ import annotations

import re
from typing import Any

import pytest

from autoscale_enforcer.ledger.scripts import load_scripts, scripts_folder
from tests.support.lua_files import (
    LuaFile,
    bound_names,
    libraries,
    scripts,
    with_includes,
    without_calls,
)
from tests.support.prelude import declared_access, with_prelude
from tests.support.servers import Server

SCRIPTS = [pytest.param(file, id=file.name) for file in scripts()]
LIBRARIES = [pytest.param(file, id=file.name) for file in libraries()]
FILES = SCRIPTS + LIBRARIES

ALIASES = {"node": "name"}
"""Where the header's name is that of a row in the body."""

LOOPS = {"begin_build", "publish_build"}
"""Scripts that treat a range of keys alike."""


ASK_ACCESS = """
  local arguments, arity = {}, redis.call('COMMAND', 'INFO', ARGV[1])[1][2]
  for i = 2, math.abs(arity) do
    arguments[i - 1] = 'a'
  end
  local keys = redis.pcall('COMMAND', 'GETKEYSANDFLAGS', ARGV[1], unpack(arguments))
  return keys.err and {} or keys[1][2]
"""
"""How a command touches its first key; in Lua, for redis-py reads this answer wrongly."""


def bound_as(name: str, bound: str) -> bool:
    beside = name.removeprefix("new_")
    in_table = re.sub(r"_(cpu|mem)$", r".\1", name)
    return bound in (name, f"keys.{beside}", in_table, beside, ALIASES.get(name))


def used_functions(text: str, known: set[str]) -> set[str]:
    return {name for name in re.findall(r"\b(\w+)\(", text) if name in known}


@pytest.mark.parametrize("file", SCRIPTS)
def test_header_says_what_a_reader_must_know(file: LuaFile) -> None:
    labels = [
        *(rf"-- {file.name}: ", "-- Why one script: ", r"-- Returns \{word", "-- Keeps:  "),
        *("-- Again:  ", "-- Cost:   O", "-- Include:"),
    ]

    missing = [label for label in labels if not re.search(f"^{label}", file.header, re.MULTILINE)]

    assert missing == []
    assert load_scripts()[file.name].words


@pytest.mark.parametrize("file", LIBRARIES)
def test_include_says_what_it_takes_and_gives(file: LuaFile) -> None:
    labels = [f"-- {file.name}: ", "-- Takes: ", "-- Gives: "]

    missing = [label for label in labels if not re.search(f"^{label}", file.header, re.MULTILINE)]

    assert missing == []


@pytest.mark.parametrize("file", SCRIPTS)
def test_header_names_are_bound_once_each_by_the_body(file: LuaFile) -> None:
    script, bound = load_scripts()[file.name], bound_names(file)
    declared = {f"KEYS[{i}]": name for i, name in enumerate(script.key_names, 1)}
    declared |= {f"ARGV[{i}]": name for i, name in enumerate(script.arg_names, 1)}
    written = re.findall(r"(?:KEYS|ARGV)\[\d+\]", file.body)

    misnamed = {
        source: (name, bound[source])
        for source, name in declared.items()
        if source in bound and not bound_as(name, bound[source])
    }
    unbound = declared.keys() - bound.keys()

    assert misnamed == {}
    assert sorted(written) == sorted(bound)
    assert bound.keys() <= declared.keys()
    assert not unbound or file.name in LOOPS
    assert not {source for source in unbound if source.startswith("ARGV")}


@pytest.mark.parametrize("file", LIBRARIES)
def test_include_is_one_local_function_of_its_parameters(file: LuaFile) -> None:
    functions = re.findall(r"^(?:local )?function (\w+)|^local (\w+) =", file.body, re.MULTILINE)

    assert functions == [(file.name, "")]
    assert file.body.startswith(f"local function {file.name}(")
    assert "KEYS" not in file.body
    assert "ARGV" not in file.body


@pytest.mark.parametrize("file", FILES)
def test_include_line_lists_what_the_body_calls(file: LuaFile) -> None:
    known = {library.name for library in libraries()} - {file.name}

    assert set(file.includes) == used_functions(file.body, known)
    assert list(file.includes) == sorted(file.includes)


def test_every_include_is_used() -> None:
    used = {library.name for script in scripts() for library in with_includes(script)}

    assert {library.name for library in libraries()} <= used


@pytest.mark.parametrize("file", SCRIPTS)
def test_answer_words_of_the_body_are_those_of_the_header(file: LuaFile) -> None:
    said = set().union(*(part.quoted_words for part in with_includes(file)))

    assert said == load_scripts()[file.name].words


@pytest.mark.parametrize("file", SCRIPTS)
def test_every_answer_word_has_a_test_of_its_script(file: LuaFile) -> None:
    """EPOCH and FENCED: of every script at once, in test_fencing.py."""
    folder = scripts_folder().parent / "tests" / "lua"
    tests = "\n".join(
        path.read_text() for path in folder.glob("test_*.py") if file.name in path.read_text()
    )

    words = load_scripts()[file.name].words - {"EPOCH", "FENCED"}
    untested = {word for word in words if not re.search(rf"\b{word}\b", tests)}

    assert untested == set()


@pytest.mark.parametrize("file", FILES)
def test_numbers_never_pass_through_what_loses_digits(file: LuaFile) -> None:
    """From 1e14 up, `tostring`, `..` and cjson write `1e+14`."""
    joined = re.findall(r"(\S+)\s*\.\.\s*(\S+)", file.body)

    assert re.findall(r"\b(?:tostring|cjson|cmsgpack|bit\.|math\.random)\b", file.body) == []
    assert [pair for pair in joined if not any("'" in side for side in pair)] == []


@pytest.mark.parametrize("file", FILES)
def test_redis_is_called_in_one_way(file: LuaFile) -> None:
    calls = re.findall(r"redis\.(\w+)", file.body)

    assert set(calls) <= {"call"}
    assert len(calls) == len(file.calls)


def command_access(server: Server) -> Any:
    """`access(command)`: r, w or rw, as the server says of its first key; '' without keys."""
    found: dict[str, str] = {}

    def access(command: str) -> str:
        if command not in found:
            with server.client() as client:
                found[command] = _asked_access(client, command)
        return found[command]

    return access


def _asked_access(client: Any, command: str) -> str:
    flags = client.eval(ASK_ACCESS, 0, command)
    reads = b"RO" in flags or b"access" in flags
    writes = bool(flags) and b"RO" not in flags
    return "r" * reads + "w" * writes


@pytest.mark.parametrize("file", [file for file in SCRIPTS if file.id not in LOOPS])
def test_declared_access_is_needed_by_some_command(file: LuaFile, valkey_server: Server) -> None:
    """The other half, that nothing more is touched, is what the prelude checks in tests/lua."""
    access = command_access(valkey_server)
    script, bound = load_scripts()[file.name], bound_names(file)
    by_bound_name = {
        bound[f"KEYS[{i}]"]: (name, declared)
        for i, (name, declared) in enumerate(
            zip(script.key_names, declared_access(file.name), strict=True), 1
        )
    }
    possible: dict[str, set[str]] = {}
    for part in with_includes(file):
        for command, argument in part.calls:
            possible.setdefault(argument, set()).update(access(command))

    idle = {
        name: declared
        for bound_name, (name, declared) in by_bound_name.items()
        if not set(declared) <= possible.get(bound_name, set())
    }

    assert idle == {}


@pytest.mark.parametrize(
    ("body", "access"),
    [
        pytest.param("redis.call('SET', 'ae:{t}:stray', '1')", "rw", id="undeclared key"),
        pytest.param("redis.call('HSET', KEYS[1], 'a', '1')", "r", id="written, declared as read"),
        pytest.param("redis.call('HGET', KEYS[1], 'a')", "w", id="read, declared as written"),
        pytest.param("redis.call('HINCRBY', KEYS[1], 'a', 1)", "w", id="also read"),
    ],
)
def test_prelude_refuses_what_is_not_declared(
    valkey_server: Server, body: str, access: str
) -> None:
    script = with_prelude(load_scripts()["drop_lease"], [access])
    head = script.text.partition("local keys")[0]

    with valkey_server.client() as client, pytest.raises(Exception, match="undeclared"):
        client.eval(f"{head}\n{body}\nreturn 1", 1, "ae:{t}:lease")

    with valkey_server.client() as client:
        assert client.dbsize() == 0


def test_calls_are_cut_out_whole() -> None:
    assert without_calls("a(redis.call('X', f('Y')), 'Z')") == "a(CALL, 'Z')"
