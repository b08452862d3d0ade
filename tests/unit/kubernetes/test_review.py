"""A compare beside running watches: they go on telling, and what they tell is no drift."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.cluster_double import runs_vm
from tests.support.fake_api.faults import Held, Refuse
from tests.support.fake_api.samples import Json, node, pod, virtual_machine
from tests.support.fake_api.server import FakeApi
from tests.support.live import FOLLOWING, Live, StartLive, at, metadata, phase

from autoscale_enforcer.cluster.kubernetes.review import _Late
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import NodeRow, PodRow
from autoscale_enforcer.objects.decode import convert
from autoscale_enforcer.objects.shapes import VmObject

KEYS = Keys("default")
Rows = dict[PodUid, PodRow]


def web(uid: str = "u1", **spec: Any) -> Json:
    return pod("web", uid=uid, namespace="default", **spec)


async def compared_by(live: Live) -> list[tuple[str, str]]:
    """What a compare has changed, and whom."""
    return [(what, uid) for what, uid, why in await live.journal() if b"compare" in why]


@pytest.fixture
def while_comparing(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[Rows], Awaitable[Rows]]], None]:
    """Between the list and the look at the ledger's pods, whose rows it may replace."""
    scan = Ledger.scan_pods

    def arrange(happens: Callable[[Rows], Awaitable[Rows]]) -> None:
        async def scanning(ledger: Ledger) -> Rows:
            monkeypatch.setattr(Ledger, "scan_pods", scan)
            return await happens(await scan(ledger))

        monkeypatch.setattr(Ledger, "scan_pods", scanning)

    return arrange


async def test_what_happens_during_a_compare_is_booked_meanwhile(live: Live, api: FakeApi) -> None:
    """Of a large cluster a list takes 20 s, in which nothing was heard."""
    held = Held()
    api.next("list", "pods", held)
    comparing = asyncio.ensure_future(live.compare())
    await held.arrived.wait()

    api.store.create("pods", web(node="n1", cpu="2"))
    api.store.create("nodes", node("n2"))
    await live.until_at("u1", "bound n1")
    api.store.update("pods", "default/web", phase("Succeeded"))
    await live.until_at("u1", "unknown")

    assert not comparing.done()
    held.release.set()
    await comparing
    assert live.reconciler.repaired == 0
    assert await compared_by(live) == []


async def test_a_compare_begins_no_watch_anew(live: Live, api: FakeApi) -> None:
    watches = len(api.requests("watch", "pods"))

    await live.compare()

    assert len(api.requests("watch", "pods")) == watches
    assert live.reconciler.readings()["watch_relists"] == 0


async def test_a_list_that_fails_is_read_again_and_costs_no_lease(live: Live, api: FakeApi) -> None:
    api.next("list", "pods", Refuse(503, "ServiceUnavailable"))

    await live.compare()

    assert len(api.requests("list", "pods")) == 3  # of the build, and twice
    assert live.leader.is_leading


async def test_a_cluster_that_cannot_be_listed_for_long_is_another_replicas(
    start_live: StartLive, api: FakeApi
) -> None:
    following = replace(FOLLOWING, list_silence=timedelta(milliseconds=200))
    live = await start_live(following=following)
    await live.lead()
    api.always("list", "pods", Refuse(503, "ServiceUnavailable"))

    with pytest.raises(ClusterUnavailable):
        await live.compare()

    assert live.reconciler.is_due()
    api.always("list", "pods", None)


async def test_a_compare_that_did_not_come_to_its_end_is_due_again(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had been mended by then was all, for minutes."""
    scan = Ledger.scan_pods

    async def away(_: Ledger) -> Rows:
        raise LedgerUnavailable("away")

    monkeypatch.setattr(Ledger, "scan_pods", away)
    with pytest.raises(LedgerUnavailable):
        await live.compare()
    monkeypatch.setattr(Ledger, "scan_pods", scan)

    assert live.reconciler.is_due()
    await live.lead()
    assert not live.reconciler.is_due()


async def test_what_no_watch_has_told_is_mended_and_counted(live: Live, api: FakeApi) -> None:
    """Each row as if its last event had been lost."""
    api.store.create("nodes", node("n2"))
    for name in ("older", "lost", "same"):
        api.store.create(
            "pods", pod(name, uid=f"u-{name}", node="n1", cpu="1", namespace="default")
        )
        await live.until_at(f"u-{name}", "bound n1")
    await live.until(lambda: live.front.raw.hlen(KEYS.key("nodes")), 2)
    await _falsify(live, "u-older", rv="1")
    await _falsify(live, "u-same", max_cpu=5)
    await _forget(live, "u-lost")
    row = await live.front.node("n2")
    row.cap_cpu = 1
    await live.front.raw.hset(KEYS.key("nodes"), "n2", row.encode())

    await live.compare()

    assert live.reconciler.repaired == 4
    assert sorted(await compared_by(live)) == [("put_node", "-"), ("put_pod", "u-lost")]
    assert (await live.front.node("n2")).cap_cpu == 8000
    assert await live.where("u-lost") == "bound n1"


async def _falsify(live: Live, uid: str, **fields: Any) -> None:
    row = await live.front.row(uid)
    assert row is not None
    await live.front.raw.hset(KEYS.key("pods"), uid, replace(row, **fields).encode())


async def _forget(live: Live, uid: str) -> None:
    """Take a pod out of the books, its node's sums and the count of rows included."""
    row, there = await live.front.row(uid), await live.front.node("n1")
    assert row is not None
    there.pods -= 1
    for what in ("reserved_cpu", "committed_cpu"):
        setattr(there, what, getattr(there, what) - row.cpu)
    for what in ("reserved_mem", "committed_mem"):
        setattr(there, what, getattr(there, what) - row.mem)
    raw = live.front.raw
    await raw.hset(KEYS.key("nodes"), "n1", there.encode())
    await raw.hdel(KEYS.key("pods"), uid)
    await raw.hdel(KEYS.key("names"), row.name)
    await raw.hincrby(KEYS.key("meta"), "pods", -1)


async def test_news_on_its_way_is_no_drift(
    start_live: StartLive, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that changed while the list was read was counted as repaired."""
    takes = timedelta(seconds=1.5)
    live = await start_live(following=replace(FOLLOWING, news_takes=takes))
    await live.lead()
    api.store.create("pods", web(node="n1", cpu="1"))
    await live.until_at("u1", "bound n1")
    put, loop, heard = live.reconciler.put_pod, asyncio.get_running_loop(), asyncio.Event()

    def slowly(fact: PodFact) -> None:
        heard.set()
        loop.call_later(takes.total_seconds() / 3, put, fact)

    monkeypatch.setattr(live.reconciler, "put_pod", slowly)
    api.store.update("pods", "default/web", metadata(labels={"is": "new"}))
    await heard.wait()

    await live.compare()

    assert live.reconciler.repaired == 0
    assert await compared_by(live) == []
    row = await live.front.row("u1")
    assert row is not None
    assert row.rv == api.store.get("pods", "default/web")["metadata"]["resourceVersion"]


async def test_a_pod_that_goes_after_the_list_does_not_come_back(
    live: Live, api: FakeApi, while_comparing: Callable[..., None]
) -> None:
    gone = pod("vm-pod", uid="u1", node="n1", namespace="default", **runs_vm())
    api.store.create("pods", gone)
    await live.until_at("u1", "bound n1")

    async def goes(_: Rows) -> Rows:
        api.store.remove("pods", "default/vm-pod")
        await live.until_at("u1", "unknown")
        return {}

    while_comparing(goes)

    await live.compare()

    assert await live.where("u1") == "unknown"
    assert live.reconciler.repaired == 0
    assert live.reconciler.world.pods_of(("default", "vm-a")) == []


async def test_a_pod_that_is_bound_after_the_list_waits_for_no_room(
    live: Live, api: FakeApi, while_comparing: Callable[..., None]
) -> None:
    api.store.create("pods", web(cpu="1"))
    await live.until_at("u1", "pending -")

    async def is_bound(rows: Rows) -> Rows:
        api.store.update("pods", "default/web", at(nodeName="n1"))
        await live.until_at("u1", "bound n1")
        return rows

    while_comparing(is_bound)

    await live.compare()

    assert await live.where("u1") == "bound n1"
    assert live.reconciler.pending == set()


async def test_vms_that_no_watch_has_told_of_are_taken_from_the_list(
    live: Live, api: FakeApi
) -> None:
    """The pod says of its VM only which one it is; its event is lost, and that of another's end."""
    api.store.create("pods", pod("a", uid="u1", node="n1", **runs_vm(annotations={})))
    await live.until_at("u1", "bound n1")
    api.store.create("virtualmachines", virtual_machine("vm-a", cpus=(1, 3, 4)))
    await live.until_amount("u1", 3000, 1024)
    world = live.reconciler.world
    del world._vms["default", "vm-a"]
    named = {"name": "vm-gone", "namespace": "default", "resourceVersion": "7"}
    world.change_vm(convert({"metadata": named}, VmObject), gone=False)

    await live.compare()

    assert world._vms.keys() == {("default", "vm-a")}
    assert await live.amount("u1") == (3000, 1024)


def test_what_was_said_since_is_not_replaced() -> None:
    """An older fact of the list took the place of the watch's, which still waited for Redis."""
    told: list[str] = []

    class Followed:
        on_its_way = frozenset({("pod", "u1"), ("node", "n1")})

        def is_told(self, key: object) -> bool:
            return key in self.on_its_way

        def mend_deleted_pod(self, uid: PodUid, _: PodName) -> None:
            told.append(uid)

        def mend_deleted_node(self, name: NodeName, _: str) -> None:
            told.append(name)

    late = _Late(Followed())  # type: ignore[arg-type]
    for uid in ("u1", "u2"):
        late.mend_deleted_pod(PodUid(uid), PodName("default/web"))
    for name in ("n1", "n2"):
        late.mend_deleted_node(NodeName(name), "uid")
    assert told == []

    late.tell()
    late.tell()

    assert told == ["u2", "n2"]


async def test_a_node_that_leaves_after_the_list_does_not_come_back(
    live: Live, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.store.create("nodes", node("n2", uid="uid-n2"))
    await live.until(lambda: live.front.raw.hlen(KEYS.key("nodes")), 2)
    read = Ledger.read_nodes

    async def leaves(ledger: Ledger) -> dict[NodeName, NodeRow]:
        monkeypatch.setattr(Ledger, "read_nodes", read)
        api.store.remove("nodes", "n2")
        await live.until(lambda: live.front.raw.hlen(KEYS.key("nodes")), 1)
        return await read(ledger)

    monkeypatch.setattr(Ledger, "read_nodes", leaves)

    await live.compare()

    assert await live.front.raw.hkeys(KEYS.key("nodes")) == [b"n1"]
    assert live.reconciler.repaired == 0
