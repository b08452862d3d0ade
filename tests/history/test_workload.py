"""The workload does what it says to a healthy service."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import aiohttp
import pytest
from typing_extensions import override

from autoscale_enforcer.model.resources import Resources
from tests.history import clients
from tests.history.answers import Answer
from tests.history.check import check
from tests.history.clients import Client, Pod, plain_pod
from tests.history.record import Op, Outcome, Recorder, read_history
from tests.history.scene import healthy, so_many, some_nodes
from tests.history.workload import Targets, run
from tests.support.servers import Server


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


class Interrupted(Client):
    """Is given no clear answer to the first two of its calls."""

    sent: int = 0

    @override
    async def extend(self, verb: str, body: dict[str, object]) -> Answer:
        self.sent += 1
        return (
            Answer(503, b"") if self.sent < 3 else Answer(200, b'{"Code":"Success","Reasons":[]}')
        )


async def test_a_client_asks_for_the_same_again_until_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked for something else each time: too much to find out what had come of all that."""
    monkeypatch.setattr(clients, "PERSISTENCE", 1)
    monkeypatch.setattr(clients, "PAUSE", 0)
    targets = Targets(extenders=[], agents=[], admins=[], nodes=some_nodes(20))
    path = tmp_path / "history.jsonl"

    with Recorder(path) as recorder:
        async with aiohttp.ClientSession() as http:
            client = Interrupted(1, 1, targets, http, recorder, "vm-1", "n1")
            await client.unreserve(Pod(plain_pod("a", Resources(1, 1)), Resources(1, 1)))

    history = read_history([path])
    assert [each.outcome for each in history] == [Outcome.UNKNOWN, Outcome.UNKNOWN, Outcome.DONE]
    assert len({(each.op, each.pod, each.node, each.asked) for each in history}) == 1
