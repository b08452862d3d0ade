"""The checker finds what is planted, in what real clients were told; without it, nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from autoscale_enforcer.cluster.file_source import FileSource
from autoscale_enforcer.ledger import ledger as ledger_module
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.objects.listing import read_cluster
from tests.history.careless import (
    Change,
    as_it_is,
    decide_in_two_calls,
    decide_on_stale_mirror,
    scripts_that_trust_their_caller,
    take_any_server_for_good,
)
from tests.history.check import Report, check
from tests.history.clients import Client
from tests.history.record import Op, Recorder, read_history
from tests.history.scene import so_many, some_nodes
from tests.history.workload import Targets, cluster_objects, known_at_start, run
from tests.support.proxy import Proxy
from tests.support.replica import Kind as ReplicaKind
from tests.support.replica import Replica, running
from tests.support.replica import until as until_so
from tests.support.servers import Kind, Server, async_client

CLIENTS = 24
SETTLE = timedelta(seconds=20)
"""Longer than the test: only what agents say ends the wait for them."""


@pytest.fixture(params=["valkey", pytest.param("redis", marks=pytest.mark.long)])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@asynccontextmanager
async def replicas_over(
    url: str, server: Server, nodes: Mapping[str, Resources], **given: object
) -> AsyncIterator[list[Replica]]:
    """Three replicas in this process over a cluster out of a file; the first one leads."""
    items = cluster_objects(nodes, clients=CLIENTS)
    listing = read_cluster(json.dumps({"kind": "List", "items": items}).encode())
    async with AsyncExitStack() as stack:
        raw = async_client(server)
        stack.push_async_callback(raw.aclose)
        found = []
        for name in ("r1", "r2", "r3"):
            kind = ReplicaKind(name=name, **given)  # type: ignore[arg-type]
            one = running(url, raw, lambda led: FileSource(listing, led, without_pods=False), kind)
            found.append(await stack.enter_async_context(one))
        await found[0].catch_up()
        yield found


def targets_of(replicas: list[Replica], nodes: Mapping[str, Resources]) -> Targets:
    host = "http://127.0.0.1"
    return Targets(
        extenders=[f"{host}:{each.ports['extender']}/extender" for each in replicas],
        agents=[f"{host}:{each.ports['agent']}" for each in replicas],
        admins=[f"{host}:{each.ports['admin']}" for each in replicas],
        nodes=nodes,
    )


def proven(report: Report) -> set[Op]:
    """What was surely answered wrongly."""
    return {each.wrong.operation.op for each in report.counterexamples if each.is_proven}


# Grants decided apart from their write


async def told(kind: Kind, folder: Path, decide: Change) -> Report:
    """What the checker says of many clients at three replicas that decide so."""
    nodes, path = some_nodes(12), folder / "history.jsonl"
    with Server(kind) as server:
        async with replicas_over(server.url, server, nodes) as replicas:
            for replica in replicas:
                decide(replica.ledger)
            with Recorder(path) as recorder:
                until = so_many(recorder, 1200)
                targets = targets_of(replicas, nodes)
                await run(targets, seed=3, clients=CLIENTS, until=until, recorder=recorder)
    return check(read_history([path]), most=20)


@pytest.mark.parametrize("decide", [decide_in_two_calls, decide_on_stale_mirror])
async def test_a_grant_decided_apart_from_its_write_is_found(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decide: Change
) -> None:
    monkeypatch.setattr(ledger_module, "load_scripts", scripts_that_trust_their_caller)

    report = await told(kind, tmp_path, decide)

    assert Op.RESERVE in proven(report), report.text


async def test_grants_decided_in_their_script_are_explained(kind: Kind, tmp_path: Path) -> None:
    report = await told(kind, tmp_path, as_it_is)

    assert report.is_linearizable, report.text


# A promoted replica that lacks a grant


class Pair:
    """A primary, and a replica that may stop listening to it; a proxy knows which one serves."""

    def __init__(self, primary: Server, replica: Server) -> None:
        self.primary, self.replica = primary, replica

    async def follow(self) -> None:
        raw = async_client(self.replica)
        await raw.replicaof("127.0.0.1", self.primary.port)

        async def is_up() -> bool:
            return bool((await raw.info("replication"))["master_link_status"] == "up")

        await until_so(is_up)
        await raw.aclose()

    def caught_up(self) -> None:
        """The replica has everything so far; pytest's time limit ends the wait.

        Not WAIT: it speaks of what its own connection has written.
        """
        with self.primary.client() as primary, self.replica.client() as replica:
            offset = primary.info("replication")["master_repl_offset"]
            while replica.info("replication")["slave_repl_offset"] < offset:
                time.sleep(0.01)

    def part(self) -> None:
        """The replica hears nothing more, and may be written to."""
        with self.replica.client() as client:
            client.replicaof("NO", "ONE")


@pytest.fixture
def pair(kind: Kind) -> Iterator[Pair]:
    now = ("--repl-diskless-sync-delay", "0")
    with ExitStack() as stack:
        primary, replica = (stack.enter_context(Server(kind, *now, tcp=True)) for _ in range(2))
        yield Pair(primary, replica)


async def promoted(pair: Pair, folder: Path, change: Change) -> Report:
    """What the checker says after a promotion that has lost permits: agents ask all the while,
    and afterwards pods want room as well.
    """
    nodes, path = some_nodes(8), folder / "history.jsonl"
    await pair.follow()
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy(pair.primary))
        scene = replicas_over(proxy.url, pair.replica, nodes, settle_after=SETTLE)
        replicas = await stack.enter_async_context(scene)
        for replica in replicas:
            change(replica.ledger)
        recorder = stack.enter_context(Recorder(path))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        targets = targets_of(replicas, nodes)
        clients = [
            Client(number, 5, targets, http, recorder, uid, node)
            for number, (uid, node) in enumerate(known_at_start(targets, recorder, CLIENTS))
        ]
        await each_does(clients, Client.request_least, times=1)
        await clients[0].read()
        pair.caught_up()
        pair.part()
        await each_does(clients, Client.request_all, times=1)  # the nodes are full of VMs now
        failover = recorder.happens(Op.EPOCH)
        pair.primary.kill()
        proxy.move_to(pair.replica)
        await replicas[0].lead()
        await replicas[0].lead()
        failover.done()
        await each_does(clients, Client.begin_pod, times=1)
        await each_does(clients, lambda one: one.reserve(one.pods[0]), times=2)
        await each_does(clients, Client.request, times=2)
        await each_does(clients, Client.read, times=1)
        await each_does(clients, Client.act, times=10)
    return check(read_history([path]), most=20)


async def each_does(clients: list[Client], act: Callable[[Client], object], *, times: int) -> None:
    """All clients at once, so often one after the other."""

    async def do(client: Client) -> None:
        for _ in range(times):
            await act(client)  # type: ignore[misc]

    await asyncio.gather(*map(do, clients))


async def test_a_promoted_replica_taken_for_good_is_found(pair: Pair, tmp_path: Path) -> None:
    report = await promoted(pair, tmp_path, take_any_server_for_good)

    assert Op.RESERVE in proven(report), report.text


async def test_a_promoted_replica_that_is_noticed_is_waited_out(pair: Pair, tmp_path: Path) -> None:
    report = await promoted(pair, tmp_path, as_it_is)

    assert report.is_linearizable, report.text
