"""The ledger in one slot of a Redis Cluster of three: the slot moves, its server is replaced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from redis.crc import key_slot

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.durability import Durability, Waiting
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Lead, Reserve, ReserveAnswer
from autoscale_enforcer.ledger.reading import find_breaches
from autoscale_enforcer.model.facts import NodeFact
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import said_row
from tests.support.books import pod, settings_at
from tests.support.servers import Kind, Server
from tests.support.waiting import until

N1 = NodeName("n1")
SLOT = key_slot(Keys("t").key("nodes").encode())
LEADER = Leadership("token")


class ClusterNode(Server):
    """One server of the cluster."""

    @property
    def node_id(self) -> str:
        return str(self.ask("CLUSTER", "MYID"))

    def ask(self, *words: Any) -> Any:
        with self.client() as client:
            answer = client.execute_command(*words)
        return answer.decode() if isinstance(answer, bytes) else answer

    def info(self) -> str:
        """CLUSTER INFO as text; redis-py would make a dict of it, by its own names."""
        with self.client() as client:
            found: Any = client.eval("return redis.call('CLUSTER', 'INFO')", 0)
        return bytes(found).decode()


@pytest.fixture(params=["valkey", pytest.param("redis", marks=pytest.mark.long)])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def cluster(kind: Kind) -> Iterator[list[ClusterNode]]:
    """Three servers with a third of the slots each, and a replica of the one that has ours.

    The node timeout sets how soon each tells the others of itself (half of it), and how soon a
    replica that was not voted for may ask again (four times).
    """
    flags = ["--cluster-enabled", "yes", "--cluster-node-timeout", "4000", "--appendonly", "yes"]
    flags += ["--repl-diskless-sync-delay", "0"]
    with ExitStack() as stack:
        nodes = [stack.enter_context(ClusterNode(kind, *flags, tcp=True)) for _ in range(4)]
        for number, node in enumerate(nodes, 1):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number)
        bounds = [(0, 5460), (5461, 10922), (10923, 16383)]
        for node, (first, last) in zip(nodes, bounds, strict=False):
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
        for node in nodes[1:]:
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus_port)
        for node in nodes:
            until(lambda node=node: "cluster_known_nodes:4" in node.info())  # type: ignore[misc]
            until(lambda node=node: "cluster_state:ok" in node.info())  # type: ignore[misc]
        owner = next(
            n for n, (first, last) in zip(nodes, bounds, strict=False) if first <= SLOT <= last
        )
        nodes[3].ask("CLUSTER", "REPLICATE", owner.node_id)
        with nodes[3].client() as client:
            until(lambda: client.info("replication").get("master_link_status") == "up")
        for node in nodes[:3]:
            until(lambda node=node: knows(node, replica=nodes[3], of=owner))  # type: ignore[misc]
        others = [node for node in nodes[:3] if node is not owner]
        yield [owner, *others, nodes[3]]


def knows(node: ClusterNode, *, replica: ClusterNode, of: ClusterNode) -> bool:
    """Whether a server has heard whose replica that one is; before that it gives it no vote."""
    lines = str(node.ask("CLUSTER", "NODES")).splitlines()
    mine = next(line.split() for line in lines if line.startswith(replica.node_id))
    return mine[3] == of.node_id


@pytest.fixture
async def ledger(cluster: list[ClusterNode]) -> AsyncIterator[Ledger]:
    """Books with node n1, found through a server that has another slot."""
    url = f"redis+cluster://127.0.0.1:{cluster[1].port},127.0.0.1:{cluster[2].port}"
    waiting = Waiting(durability=Durability.REPLICA, timeout=timedelta(seconds=10))
    ledger = Ledger.open(settings_at(url, waiting=waiting))
    await ledger.take_lease(holder="us", token=LEADER.token, lifetime=timedelta(hours=1))
    building = await ledger.begin_build(LEADER)
    assert building is not None
    fact = NodeFact(uid="x", name=N1, resource_version="1", allocatable=Resources(4000, 800))
    await ledger.put_node(fact, capacity=fact.allocatable, config_version="1", leader=building)
    assert await ledger.publish_build(building) is Lead.PUBLISHED
    yield ledger
    await ledger.close()


async def reserve(ledger: Ledger, uid: str) -> ReserveAnswer:
    said = said_row(pod(uid, cpu=1, mem=1))
    return await ledger.reserve_pod(PodUid(uid), node=N1, said=said, stamp=await ledger.stamp())


def keys_in(node: ClusterNode) -> list[bytes]:
    found: list[bytes] = node.ask("CLUSTER", "GETKEYSINSLOT", SLOT, 100)
    return found


def move(source: ClusterNode, target: ClusterNode, keys: list[bytes]) -> None:
    source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)


async def test_slot_that_moves_is_followed_and_compared(
    ledger: Ledger, cluster: list[ClusterNode]
) -> None:
    """Half of the keys moved: nothing is decided. All moved: the books are suspect there."""
    source, target, other, replica = cluster
    before = await reserve(ledger, "u1")
    target.ask("CLUSTER", "SETSLOT", SLOT, "IMPORTING", source.node_id)
    source.ask("CLUSTER", "SETSLOT", SLOT, "MIGRATING", target.node_id)
    keys = keys_in(source)
    move(source, target, keys[: len(keys) // 2])

    with pytest.raises(LedgerUnavailable):
        await reserve(ledger, "u2")

    move(source, target, keys_in(source))
    for node in (target, source, other):
        node.ask("CLUSTER", "SETSLOT", SLOT, "NODE", target.node_id)
    replica.ask("CLUSTER", "REPLICATE", target.node_id)
    after = await until_answered(ledger, "u2")

    assert (before.outcome, after.outcome) == (Reserve.HELD, Reserve.UNSETTLED)
    assert await ledger.read_pod(uid=PodUid("u1")) is not None
    assert keys_in(source) == []
    assert await find_breaches(ledger) == []


async def until_answered(ledger: Ledger, uid: str) -> ReserveAnswer:
    """What is answered once somebody answers."""
    while True:
        try:
            return await reserve(ledger, uid)
        except LedgerUnavailable:
            await asyncio.sleep(0.1)


def take_over(replica: ClusterNode) -> None:
    """In order; asked for again where the others have not voted in time."""
    with replica.client() as client:
        while client.info("replication")["role"] != "master":
            replica.ask("CLUSTER", "FAILOVER")
            end = time.monotonic() + 17
            while client.info("replication")["role"] != "master" and time.monotonic() < end:
                time.sleep(0.02)


async def test_server_that_is_replaced_is_followed_and_compared(
    ledger: Ledger, cluster: list[ClusterNode]
) -> None:
    owner, _, _, replica = cluster
    before = await reserve(ledger, "u1")
    take_over(replica)
    with owner.client() as client:
        until(lambda: client.info("replication")["role"] == "slave")

    after = await until_answered(ledger, "u2")

    assert (before.outcome, after.outcome) == (Reserve.HELD, Reserve.UNSETTLED)
    assert await ledger.read_pod(uid=PodUid("u1")) is not None
    assert await ledger.settle_ledger(LEADER) is Lead.SETTLED
    assert (await reserve(ledger, "u3")).outcome is Reserve.HELD
    assert ledger.pipeline.noticed.drops == 0
