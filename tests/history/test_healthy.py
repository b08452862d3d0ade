"""A healthy service under many clients: every answer is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.check import check
from tests.history.record import Outcome, Recorder, read_history
from tests.history.scene import healthy, so_many, some_nodes
from tests.history.workload import run
from tests.support.servers import Kind, Server


async def judge(server: Server, folder: Path, *, nodes: int, clients: int, operations: int) -> None:
    path, sizes = folder / "history.jsonl", some_nodes(nodes)
    async with healthy(server, folder, sizes, clients=clients) as targets:
        with Recorder(path) as recorder:
            until = so_many(recorder, operations)
            await run(targets, seed=1, clients=clients, until=until, recorder=recorder)

    history = read_history([path])
    report = check(history)

    assert report.is_linearizable, report.text
    assert report.operations >= operations
    assert any(each.outcome is Outcome.REFUSED for each in history), "nobody was ever refused"


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["valkey", "redis"])
async def test_what_many_clients_were_told_has_an_order(kind: Kind, tmp_path: Path) -> None:
    with Server(kind) as server:
        await judge(server, tmp_path, nodes=24, clients=48, operations=12_000)
