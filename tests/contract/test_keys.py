"""The key catalogue, one slot for all of it, and a flow through a real Redis Cluster."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from redis.crc import key_slot

from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.keys import BESIDE, BOOKS, Keys
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Confirm, Lead, Permit, Release, Reserve
from autoscale_enforcer.ledger.reading import find_breaches
from autoscale_enforcer.ledger.scripts import load_scripts, scripts_folder
from autoscale_enforcer.model.facts import NodeFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import said_row
from tests.conftest import StartServer
from tests.support.books import pod, settings_at, vm
from tests.support.servers import Server

N1 = NodeName("n1")


def declared_types() -> dict[str, set[str]]:
    """Key name (that of the books for `new_…`) to the types that headers give it."""
    found: dict[str, set[str]] = {}
    for name in load_scripts():
        text = (scripts_folder() / f"{name}.lua").read_text()
        for key, kind in re.findall(r"^-- KEYS\[\d+\] +(?:new_)?(\w+) +(\w+)", text, re.MULTILINE):
            found.setdefault(key, set()).add(kind)
    return found


def test_every_key_of_the_scripts_is_in_the_catalogue() -> None:
    assert declared_types().keys() == {*BOOKS, *BESIDE}


def test_every_key_has_one_type() -> None:
    assert {key: kinds for key, kinds in declared_types().items() if len(kinds) > 1} == {}


@pytest.mark.parametrize("cluster", ["default", "a", "prod-eu-1", "x" * 200])
def test_all_keys_of_a_cluster_are_in_one_slot(cluster: str) -> None:
    keys = Keys(cluster).all()

    assert len({key_slot(key.encode()) for key in keys}) == 1
    assert len(set(keys)) == len(keys)
    assert all(key.startswith(f"ae:{{{cluster}}}:") for key in keys)


def test_unknown_key_has_no_name() -> None:
    with pytest.raises(ValueError, match="no key is named 'node'"):
        Keys("a").key("node")


@pytest.fixture
def one_node_cluster(start_server: StartServer) -> Server:
    """All 16,384 slots on one server, which refuses a script with keys of two slots."""
    server = start_server("valkey", "--cluster-enabled", "yes", tcp=True)
    with server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        while b"cluster_state:ok" not in bytes(
            client.eval("return redis.call('CLUSTER', 'INFO')", 0)
        ):
            pass
    return server


@pytest.fixture
async def ledger(one_node_cluster: Server) -> AsyncIterator[Ledger]:
    url = one_node_cluster.tcp_url.replace("redis://", "redis+cluster://").removesuffix("/0")
    ledger = Ledger.open(settings_at(url))
    yield ledger
    await ledger.close()


async def build(ledger: Ledger) -> Leadership:
    """Books with node n1, led by us."""
    leader = Leadership("token")
    await ledger.take_lease(holder="us", token=leader.token, lifetime=timedelta(hours=1))
    building = await ledger.begin_build(leader)
    assert building is not None
    fact = NodeFact(uid="x", name=N1, resource_version="1", allocatable=Resources(4000, 800))
    await ledger.put_node(fact, capacity=fact.allocatable, config_version="1", leader=building)
    assert await ledger.publish_build(building) is Lead.PUBLISHED
    return leader


async def test_whole_flow_runs_on_a_redis_cluster(ledger: Ledger, one_node_cluster: Server) -> None:
    leader = await build(ledger)
    stamp = await ledger.stamp()
    held, bound = PodUid("u1"), PodUid("v1")
    said = said_row(pod(bound, vm=vm()))

    words = [
        (await ledger.reserve_pod(held, node=N1, said=said_row(pod(held)), stamp=stamp)).outcome,
        await ledger.unreserve_pod(held, node=N1, stamp=stamp),
        await ledger.delete_pod(held, name=PodName("default/u1"), leader=leader),
        (await ledger.reserve_pod(bound, node=N1, said=said, stamp=stamp, to="binding")).outcome,
        await ledger.abandon_bind(bound, node=N1, stamp=stamp - 1),
        await ledger.confirm_bind(bound, node=N1),
        (
            await ledger.request_permit(
                PodName("default/v1"),
                asked=Resources(2000, 200),
                factor=Resources(250, 10),
                last_permit=None,
                stamp=await ledger.stamp(),
            )
        ).outcome,
        await ledger.put_pod(pod(bound, rv="2", node=N1, vm=vm()), leader=leader),
        await ledger.delete_node(N1, uid="x", leader=leader),
        await ledger.recount_node(N1, version=0, uids=[bound], leader=leader),
        await ledger.settle_ledger(leader),
        await ledger.drop_lease(token=leader.token),
    ]

    assert words == [
        *(Reserve.HELD, Release.RELEASED, "DELETED", Reserve.BINDING, Release.LATE),
        *(Confirm.BOUND, Permit.PERMIT, "BOOKED", "ABSENT", "CHANGED", Lead.NOTHING, Lead.DROPPED),
    ]
    assert await find_breaches(ledger) == []
    with one_node_cluster.client() as client:
        assert {key.decode() for key in client.scan_iter()} <= set(Keys("t").all())


def test_cluster_refuses_a_key_of_another_slot(one_node_cluster: Server) -> None:
    """With `#!lua` on line 1; without it, the server silently wrote one."""
    with one_node_cluster.client() as client, pytest.raises(Exception, match=r"not .*same .*slot"):
        client.eval("#!lua\nreturn redis.call('SET', '{b}x', '1')", 1, "{a}x")
