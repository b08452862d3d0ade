"""A cluster out of a file, the same at every replica."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from autoscale_enforcer.cluster import sweep
from autoscale_enforcer.cluster.file_source import FileSource
from autoscale_enforcer.cluster.source import Bound
from autoscale_enforcer.errors import ClusterUnavailable
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.objects.listing import read_cluster
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import Json, pod_json, runs_vm
from tests.support.replica import Replica
from tests.unit.objects.make import node_json

N1, N2 = NodeName("n1"), NodeName("n2")
WEB = PodName("default/web")
FROM_FILE = [
    pod_json("web", cpu="2", rv="7"),
    pod_json("on-n2", node="n2"),
    pod_json("done", node="n2", phase="Succeeded"),
    pod_json("leaving", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
]


def file_of(*pods: Json, without_pods: bool = False) -> Callable[[Ledger], FileSource]:
    """What makes a source of a file with nodes n1 and n2 and these pods."""
    kinds = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods]
    items = [node_json("n1"), node_json("n2"), *kinds]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
    return lambda ledger: FileSource(read_cluster(text), ledger, without_pods=without_pods)


@pytest.fixture
async def a(start: StartReplica) -> Replica:
    replica = await start(file_of(*FROM_FILE), name="a")
    await replica.lead()
    return replica


@pytest.fixture
async def b(a: Replica, start: StartReplica) -> Replica:
    return await start(file_of(*FROM_FILE), name="b")


def source_of(replica: Replica) -> FileSource:
    found: Any = replica.binder._source
    assert isinstance(found, FileSource)
    return found


async def test_a_binding_at_one_replica_is_there_at_another(a: Replica, b: Replica) -> None:
    assert await a.bind(FROM_FILE[0]) == ""

    fact = await source_of(b).read_pod(WEB)
    assert fact is not None
    assert fact.node == "n1"
    assert await source_of(b).pods_on(N1) == {"web"}


async def test_the_first_binding_counts(a: Replica, b: Replica) -> None:
    first = await source_of(a).bind(PodUid("web"), WEB, node=N1, resource_version="7")
    again = await source_of(b).bind(PodUid("web"), WEB, node=N1, resource_version="7")
    other = await source_of(b).bind(PodUid("web"), WEB, node=N2, resource_version="7")

    assert (first, again, other) == (Bound.CREATED, Bound.UNCLEAR, Bound.UNCLEAR)


@pytest.mark.parametrize(
    ("name", "uid", "version", "expected"),
    [
        ("web", "web", "7", Bound.CREATED),
        ("web", "web", "-", Bound.CREATED),
        ("web", "web", "", Bound.CREATED),
        ("web", "web", "8", Bound.OTHER_VERSION),
        ("web", "another", "7", Bound.UNCLEAR),
        ("on-n2", "on-n2", "1", Bound.UNCLEAR),
        ("leaving", "leaving", "1", Bound.UNCLEAR),
        ("done", "done", "1", Bound.UNCLEAR),
        ("absent", "absent", "1", Bound.UNCLEAR),
    ],
)
async def test_bind_keeps_an_api_servers_rules(
    a: Replica, name: str, uid: str, version: str, expected: Bound
) -> None:
    pod = PodName(f"default/{name}")

    answer = await source_of(a).bind(PodUid(uid), pod, node=N1, resource_version=version)

    assert answer is expected


async def test_pods_on_leaves_out_those_that_have_finished(a: Replica) -> None:
    assert await source_of(a).pods_on(N2) == {"on-n2"}
    assert await source_of(a).pods_on(N1) == set()


async def test_a_pod_first_seen_in_a_filter_can_be_bound_at_another_replica(
    a: Replica, b: Replica
) -> None:
    new = pod_json("new", cpu="3")
    await a.filter(new)

    assert await b.bind(new) == ""

    assert await a.where("new") == "bound n1"
    assert await a.reserved() == (3000, 1024)
    assert (await a.filter(new, "n1", "n2")).passed == ["n1"]


async def test_a_pod_that_nobody_has_seen_cannot_be_bound(a: Replica) -> None:
    assert await a.bind(pod_json("new")) == "Pod is finished or deleted"


async def test_a_filter_notes_the_pod_once_and_nothing_else(a: Replica) -> None:
    """Field report 5."""
    new = pod_json("new", cpu="3")
    await a.filter(new)
    before = await a.dump()

    for _ in range(10):
        await a.filter(new, "n1", "n2")
        await a.prioritize(new, "n1", "n2")
        await a.preempt(new, n2=["on-n2"])

    assert await a.dump() == before
    assert await a.reserved() == (0, 0)


async def test_pods_of_the_file_can_be_left_out(start: StartReplica) -> None:
    replica = await start(file_of(*FROM_FILE, without_pods=True))
    await replica.lead()

    assert await source_of(replica).list_pods() == []
    assert (await replica.node("n2")).pods == 0
    assert await source_of(replica).read_pod(WEB) is None
    await replica.filter(FROM_FILE[0])
    assert await replica.bind(FROM_FILE[0]) == ""


async def test_outdating_answers_the_pod_as_it_is(a: Replica) -> None:
    fact = await source_of(a).read_pod(WEB)
    assert fact is not None
    await a.bind(FROM_FILE[0])

    now = await source_of(a).outdate_bindings(fact)

    assert now is not None
    assert (now.node, now.resource_version) == ("n1", "7")


async def test_a_bind_without_redis_is_unclear_and_reads_are_unavailable(
    start: StartReplica, orphan: Replica
) -> None:
    source = file_of(*FROM_FILE)(orphan.ledger)

    for read in (source.read_pod(WEB), source.pods_on(N1)):
        with pytest.raises(ClusterUnavailable):
            await read


async def test_a_rebuilt_ledger_keeps_bindings_of_pods_in_the_file(a: Replica) -> None:
    """The file says that they are unbound: a build took back what had been bound since."""
    await a.bind(FROM_FILE[0])
    await a.ledger.look()
    await a.raw.delete("ae:{default}:nodes")

    await a.lead()

    assert await a.where("web") == "bound n1"
    assert await a.reserved() == (2000, 1024)


@pytest.mark.parametrize("are_many", [False, True], ids=["few", "many"])
async def test_a_hold_that_lapses_is_settled_by_the_shared_copy(
    start: StartReplica, monkeypatch: pytest.MonkeyPatch, *, are_many: bool
) -> None:
    """Of many, one that only a request had brought was taken for gone though it was bound."""
    if are_many:
        monkeypatch.setattr(sweep, "READ_ONE_BY_ONE", 0)
    source = file_of(*FROM_FILE)
    replica = await start(source, hold_lifetime=timedelta(milliseconds=1))
    await replica.lead()
    for pod in (FROM_FILE[0], pod_json("brought", rv="7"), pod_json("other")):
        await replica.reserve(pod)
    for name in (WEB, PodName("default/brought")):
        uid = PodUid(name.partition("/")[2])
        await source_of(replica).bind(uid, name, node=N1, resource_version="7")

    await replica.sweep(lapsed=3)

    assert await replica.where("web") == "bound n1"
    assert await replica.where("brought") == "bound n1"
    assert await replica.where("other") == "pending -"


async def test_a_vm_of_the_file_lends_its_data_to_a_pod_in_a_request(start: StartReplica) -> None:
    vm = {
        "apiVersion": "vm.neon.tech/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm-a", "namespace": "default", "resourceVersion": "3"},
        "spec": {
            "guest": {
                "cpus": {"min": 1, "use": 2, "max": 4},
                "memorySlots": {"min": 1, "use": 3, "max": 4},
                "memorySlotSize": "1Gi",
            }
        },
    }
    text = json.dumps({"kind": "List", "apiVersion": "v1", "items": [node_json("n1"), vm]})
    replica = await start(
        lambda ledger: FileSource(read_cluster(text.encode()), ledger, without_pods=False)
    )
    await replica.lead()

    await replica.reserve(pod_json("u1", metadata=runs_vm(annotations={})))

    assert await replica.reserved() == (2000, 3 << 10)
