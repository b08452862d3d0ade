"""The commands that change something: options, words and exit codes, against a real replica."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autoscale_enforcer.cli.main import main
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, pod_json
from tests.support.replica import Replica, until

Run = Callable[..., Awaitable[Result]]

REASON = ("--reason", "INC-12", "--as", "ann")


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("s3cret")
    return file


@pytest.fixture
async def replica(start: StartReplica, token_file: Path) -> Replica:
    replica = await start(admin_token_file=token_file)
    await replica.lead()
    return replica


@pytest.fixture
def run(replica: Replica, token_file: Path) -> Run:
    """`await run(command, …)` against the replica, with its token and a reason."""
    where = {
        "AE_ADMIN_URL": f"http://127.0.0.1:{replica.ports['admin']}",
        "AE_ADMIN_TOKEN_FILE": str(token_file),
    }

    async def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
        invoke = CliRunner().invoke
        return await asyncio.to_thread(invoke, main, arguments, env=env or where)

    return run


async def test_freeze_and_thaw_say_what_holds_now(replica: Replica, run: Run) -> None:
    frozen = await run("freeze", *REASON)
    again = await run("freeze", "--reason", "other")
    node = await run("freeze", "--node", "n1", *REASON)
    status = await run("status")
    thawed = await run("thaw", *REASON)
    nothing = await run("thaw", *REASON)

    assert frozen.output == "Grants are stopped: everything.\n"
    assert again.output.startswith("Frozen already: everything, since 20")
    assert again.output.endswith("by ann: INC-12\n")
    assert node.output == "Grants are stopped: node n1.\n"
    assert "frozen" in status.output.splitlines()[1]
    assert "frozen: everything, since 20" in status.output
    assert thawed.output.startswith("This freeze has ended: everything, since 20")
    assert "Still frozen: node n1" in thawed.output
    assert nothing.output.startswith("There is no freeze of everything.\n")
    assert {r.exit_code for r in (frozen, again, node, thawed, nothing)} == {0}


async def test_orders_carry_who_and_why_into_the_journal(replica: Replica, run: Run) -> None:
    await run("freeze", "--reason", "INC-12", env=None)

    _, entry = (await replica.raw.xrevrange("ae:{default}:journal", count=1))[0]

    assert entry[b"what"] == b"freeze"
    assert b"INC-12" in entry[b"context"]
    assert b"@" in entry[b"context"]  # user@host, unless --as says other


async def test_release_says_what_is_free_now(
    replica: Replica, cluster: ClusterDouble, run: Run
) -> None:
    await replica.reserve(cluster.pod("u1", cpu="2"))

    dry = await run("release", "default/u1", "--dry-run")
    held = await replica.where("u1")
    done = await run("release", "default/u1", *REASON)
    again = await run("release", "default/u1", *REASON)

    words = "2 CPU and 1 GiB on n1 (held)"
    why = "free, for the cluster has it unbound.\n"
    assert dry.output == f"Pod default/u1: {words} would be {why}"
    assert held == "held n1"
    assert done.output == f"Pod default/u1: {words} is {why}"
    assert again.output == "Pod default/u1: it holds nothing.\n"
    assert {r.exit_code for r in (dry, done, again)} == {0}


async def test_release_is_refused_for_a_pod_that_uses_its_room(
    replica: Replica, cluster: ClusterDouble, run: Run
) -> None:
    cluster.pod("u1", node="n1")
    await replica.catch_up()

    result = await run("release", "default/u1", *REASON)

    assert result.exit_code == 4
    assert "bound to n1 and not finished" in result.output


async def test_reconcile_waits_for_the_leader(replica: Replica, run: Run) -> None:
    asked = asyncio.ensure_future(run("reconcile", *REASON))

    async def is_asked() -> bool:
        return (await replica.ledger.read_compare()).is_open

    await until(is_asked)

    await replica.lead()

    result = await asked
    assert result.output == "Compared by r1; rows that had to be mended: 0.\n"
    assert result.exit_code == 0


async def test_reconcile_without_a_leader_ends_as_unreachable(run: Run) -> None:
    result = await run("reconcile", *REASON, "--wait", "1ms")

    assert result.exit_code == 3
    assert "no replica has compared yet" in result.output


async def test_reconcile_may_not_wait(replica: Replica, run: Run) -> None:
    result = await run("reconcile", *REASON, "--wait", "0")

    assert (result.exit_code, "Asked" in result.output) == (0, True)
    assert (await replica.ledger.read_compare()).is_open


async def test_dry_reconcile_exits_with_1_where_something_differs(
    replica: Replica, cluster: ClusterDouble, run: Run
) -> None:
    same = await run("reconcile", "--dry-run")
    cluster.pod("u1", node="n1", cpu="2")

    differs = await run("reconcile", "--dry-run")

    assert (same.exit_code, same.output) == (
        0,
        "No difference: the ledger says what the cluster says.\n",
    )
    assert differs.exit_code == 1
    assert "  pod default/u1: ledger nothing; cluster bound on n1, 2000m" in differs.output


async def test_every_order_prints_json(replica: Replica, run: Run) -> None:
    await replica.reserve(pod_json("u1"))
    for command in (
        ("freeze", *REASON),
        ("thaw", *REASON),
        ("release", "default/u1", "--dry-run"),
        ("reconcile", "--dry-run"),
    ):
        result = await run(*command, "--json")

        assert "outcome" in json.loads(result.output), command


@pytest.mark.parametrize("command", ["freeze", "thaw", "reconcile", "release a/b"])
async def test_orders_are_refused_before_they_are_sent(
    replica: Replica, run: Run, token_file: Path, tmp_path: Path, command: str
) -> None:
    words = command.split()
    url = f"http://127.0.0.1:{replica.ports['admin']}"
    (tmp_path / "bad").write_text("two words")

    no_reason = await run(*words)
    no_token = await run(*words, *REASON, env={"AE_ADMIN_URL": url})
    bad_token = await run(*words, *REASON, "--admin-token-file", str(tmp_path / "bad"))

    assert [r.exit_code for r in (no_reason, no_token, bad_token)] == [2, 2, 2]
    assert "--reason is needed" in no_reason.output
    assert "--admin-token-file is needed" in no_token.output
    assert "--admin-token-file: " in bad_token.output


@pytest.mark.parametrize("name", ["web", "a/b/c", "/b", "a/"])
async def test_release_of_what_is_no_name_is_wrong_use(run: Run, name: str) -> None:
    """It was sent, and refused as by the service: exit code 4, where `explain` ended with 2."""
    result = await run("release", name, *REASON)

    assert result.exit_code == 2
    assert f"{name!r} is not NAMESPACE/NAME" in result.output


@pytest.mark.parametrize("command", ["freeze", "thaw", "reconcile", "release a/b"])
async def test_orders_with_another_token_are_refused_by_the_service(
    run: Run, tmp_path: Path, command: str
) -> None:
    (tmp_path / "other").write_text("other")

    result = await run(*command.split(), *REASON, "--admin-token-file", str(tmp_path / "other"))

    assert result.exit_code == 4
    assert "that is not the admin token" in result.output
