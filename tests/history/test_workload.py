"""The workload does what it says to a healthy service."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.history.check import check
from tests.history.record import Op, Outcome, Recorder, read_history
from tests.history.scene import healthy, so_many, some_nodes
from tests.history.workload import run
from tests.support.servers import Server


@pytest.mark.timeout(60)
async def test_clients_do_everything_and_a_healthy_service_explains_each_answer(
    valkey_server: Server, tmp_path: Path
) -> None:
    nodes, path = some_nodes(6), tmp_path / "history.jsonl"

    async with healthy(valkey_server, tmp_path, nodes, clients=12) as targets:
        with Recorder(path) as recorder:
            until = so_many(recorder, 1500)
            await run(targets, seed=1, clients=12, until=until, recorder=recorder)

    history = read_history([path])
    done = Counter(each.op for each in history if each.outcome is Outcome.DONE)
    assert set(done) == set(Op)
    assert {each.replica for each in history} == {"", "r1", "r2", "r3"}
    assert any(each.outcome is Outcome.REFUSED for each in history)
    report = check(history)
    assert report.is_linearizable, report.text
