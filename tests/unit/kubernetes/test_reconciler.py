"""What the leader makes of a live cluster: facts from lists and watches, compares, and its lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import redis.asyncio

from autoscale_enforcer.background import Background
from autoscale_enforcer.cluster.kubernetes import comparing
from autoscale_enforcer.cluster.upkeep import ClusterWentBack, LostLead
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.ledger import Leadership, Ledger
from autoscale_enforcer.ledger.outcomes import Lead
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import Resources
from tests.support.cluster_double import runs_vm
from tests.support.fake_api.faults import Held, Refuse, Silence
from tests.support.fake_api.samples import Json, node, pod, virtual_machine
from tests.support.fake_api.server import FakeApi
from tests.support.live import (
    FOLLOWING,
    Live,
    StartLive,
    at,
    cluster,
    metadata,
    phase,
    starting,
)
from tests.support.replica import until

MIB = 1 << 20
KEYS = Keys("default")
HELD = "2026-01-01T00:00:00Z"


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as server:
        yield cluster(server)


@pytest.fixture
async def start(
    api: FakeApi, redis_url: str, raw_client: redis.asyncio.Redis
) -> AsyncIterator[StartLive]:
    async with starting(api, redis_url, raw_client) as start:
        yield start


@pytest.fixture
async def live(start: StartLive) -> Live:
    """Leading, its ledger built."""
    live = await start()
    await live.lead()
    return live


def vm_pod(name: str, node: str = "n1", **runs: Any) -> Json:
    """A VM's pod, its VM of the same name."""
    return pod(name, node=node, uid=f"u-{name}", **runs_vm(vm=name, **runs))


def migration(vm: str, source: str, phase: str = "Running") -> Json:
    return {
        "metadata": {"name": f"move-{vm}"},
        "spec": {"vmName": vm},
        "status": {"phase": phase, "sourcePodName": source},
    }


async def state(live: Live) -> str:
    return (await live.front.ledger.look()).state


# Nodes


async def test_node_changes_reach_the_ledger(live: Live, api: FakeApi) -> None:
    async def read() -> tuple[Resources, bool]:
        await live.front.ledger.mirror.refresh()
        known = live.front.ledger.mirror.nodes
        return known[NodeName("n1")].capacity, NodeName("n2") in known

    await live.until(read, (Resources(8000, 32 << 30), False))

    api.store.create("nodes", node("n2"))
    api.store.update("nodes", "n1", lambda found: found["status"]["allocatable"].update(cpu="6"))

    await live.until(read, (Resources(6000, 32 << 30), True))


async def test_node_labels_are_shown_to_people(live: Live, api: FakeApi) -> None:
    async def shown() -> bool:
        blob = await live.front.raw.hget(KEYS.key("facts"), "n1")
        return b"zone-b" in blob

    api.store.update("nodes", "n1", metadata(labels={"zone": "zone-b"}))

    await live.until(shown, True)


async def test_a_node_that_leaves_stays_while_pods_are_on_it_and_comes_back(
    live: Live, api: FakeApi
) -> None:
    async def is_absent() -> tuple[int, int, int]:
        row = await live.front.node()
        return row.absent, row.cap_cpu, row.reserved_cpu

    api.store.create("pods", pod("web", node="n1", uid="u1", cpu="2"))
    await live.until(is_absent, (0, 8000, 2000))

    api.store.remove("nodes", "n1")
    await live.until(is_absent, (1, 0, 2000))
    api.store.create("nodes", node("n1", cpu="4", uid="uid-again"))
    await live.until(is_absent, (0, 4000, 2000))

    assert (await live.front.node()).uid == "uid-again"
    assert await live.verify() == []


async def test_a_node_that_leaves_empty_is_gone(live: Live, api: FakeApi) -> None:
    async def is_known() -> bool:
        await live.front.ledger.mirror.refresh()
        return NodeName("n1") in live.front.ledger.mirror.nodes

    api.store.remove("nodes", "n1")

    await live.until(is_known, False)


async def test_a_node_that_cannot_be_read_keeps_its_row_until_it_leaves(
    live: Live, api: FakeApi
) -> None:
    async def known() -> dict[str, int]:
        await live.front.ledger.mirror.refresh()
        return {name: row.cap_cpu for name, row in live.front.ledger.mirror.nodes.items()}

    api.store.update("nodes", "n1", lambda found: found["status"].update(allocatable={"cpu": "?"}))
    api.store.create("nodes", node("n2"))
    await live.until(known, {"n1": 8000, "n2": 8000})
    await live.compare()
    assert await known() == {"n1": 8000, "n2": 8000}

    api.store.remove("nodes", "n1")

    await live.until(known, {"n2": 8000})


# Pods


async def test_pods_are_booked_as_they_come_are_bound_and_go(live: Live, api: FakeApi) -> None:
    api.store.create("pods", pod("web", uid="u1", cpu="2", memory="1Gi"))
    await live.until_at("u1", "pending -")
    assert live.reconciler.pending == {"u1"}

    api.store.update("pods", "default/web", at(nodeName="n1"))
    await live.until_at("u1", "bound n1")
    assert await live.reserved() == (2000, 1024)
    assert live.reconciler.pending == set()

    api.store.remove("pods", "default/web")
    await live.until_at("u1", "unknown")
    assert await live.reserved() == (0, 0)
    assert await live.verify() == []


async def test_a_resize_in_place_is_booked_once(live: Live, api: FakeApi) -> None:
    """Field report 17."""
    api.store.create("pods", pod("web", node="n1", uid="u1", cpu="1", memory="1Gi"))
    await live.until_reserved(1000, 1024)

    def resize(found: Json) -> None:
        found["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4"

    api.store.update("pods", "default/web", resize)

    await live.until_reserved(4000, 1024)


@pytest.mark.parametrize("bound", [True, False])
async def test_a_pod_being_deleted_holds_only_where_it_is_bound(
    live: Live, api: FakeApi, bound: bool
) -> None:
    api.store.create("pods", pod("web", node="n1" if bound else "", uid="u1", cpu="1"))
    await live.until_at("u1", "bound n1" if bound else "pending -")
    if not bound:
        assert (await live.front.reserve(api.store.get("pods", "default/web")))[0] == "Success"

    api.store.update("pods", "default/web", metadata(deletionTimestamp=HELD))
    api.store.create("pods", pod("later", uid="u2"))
    await live.until_at("u2", "pending -")

    assert await live.where("u1") == ("bound n1" if bound else "pending -")
    assert live.reconciler.pending == {"u2"}


async def test_a_pod_recreated_under_its_name_in_a_gap_takes_the_place_of_the_old_one(
    live: Live, api: FakeApi
) -> None:
    api.store.create("nodes", node("n2"))
    api.store.create("pods", pod("web-0", node="n1", uid="u-old", cpu="2"))
    await live.until_at("u-old", "bound n1")
    held = Held()
    api.next("watch", "pods", held)
    api.end_watches()
    await held.arrived.wait()
    api.store.remove("pods", "default/web-0")
    api.store.create("pods", pod("web-0", node="n2", uid="u-new", cpu="1"))
    api.store.forget("pods")
    held.release.set()

    await live.until_at("u-new", "bound n2")
    await live.until_at("u-old", "unknown")

    assert (await live.front.ledger.read_pod(name=PodName("default/web-0"))).uid == "u-new"  # type: ignore[union-attr]
    assert (await live.reserved("n1"), await live.reserved("n2")) == ((0, 0), (1000, 64))
    assert await live.verify() == []


async def test_ignored_namespaces_count_apart(live: Live, api: FakeApi) -> None:
    live.config.offer(b'{"scoring": {}, "ignoredNamespaces": ["filler"]}', version="2")
    await live.lead()

    api.store.create("pods", pod("f", node="n1", uid="u1", cpu="6", namespace="filler"))

    await live.until_at("u1", "bound n1")
    row = await live.front.node()
    assert (row.reserved_cpu, row.ignored_cpu) == (0, 6000)


# VMs and migrations


async def test_a_vm_without_annotation_is_read_through_its_object(live: Live, api: FakeApi) -> None:
    """NeonVM before v0.27; the VM may come after its pod, and then changes it."""
    api.store.create("pods", pod("vm-a", node="n1", uid="u1", cpu="9", **_owned_by("vm-a")))
    await live.until_amount("u1", 9000, 64)

    api.store.create("virtualmachines", virtual_machine("vm-a", cpus=("250m", 2, 8)))
    await live.until_amount("u1", 2000, 1024)
    api.store.update("virtualmachines", "default/vm-a", _uses(4))
    await live.until_amount("u1", 4000, 1024)

    assert (await live.front.row("u1")).max_cpu == 8000  # type: ignore[union-attr]


async def test_what_a_list_read_before_a_vm_changed_does_not_undo_the_change(
    live: Live, api: FakeApi
) -> None:
    """A list takes seconds, and its facts came after those of the VM's own watch."""
    api.store.create("virtualmachines", virtual_machine("vm-a", cpus=("250m", 1, 8)))
    api.store.create("pods", pod("vm-a", node="n1", uid="u1", **_owned_by("vm-a")))
    await live.until_amount("u1", 1000, 1024)
    comparison = live.reconciler._comparison
    compare_pods, changed = comparison.pods, asyncio.Event()

    async def with_a_change_before(*given: Any) -> None:
        api.store.update("virtualmachines", "default/vm-a", _uses(3))
        await live.until_amount("u1", 3000, 1024)
        changed.set()
        await compare_pods(*given)

    comparison.pods = with_a_change_before  # type: ignore[method-assign]
    api.store.forget("pods")
    api.next("watch", "pods", Refuse(410, "Expired"))
    api.end_watches()
    await changed.wait()
    await live.drained()

    assert await live.amount("u1") == (3000, 1024)


def _owned_by(vm: str) -> Json:
    return runs_vm(vm=vm, annotations={})


def _uses(cpus: int) -> Any:
    return lambda found: found["spec"]["guest"]["cpus"].update(use=cpus)


async def test_bounds_of_a_vm_are_followed(live: Live, api: FakeApi) -> None:
    async def most() -> int:
        row = await live.front.row("u-a")
        return row.max_cpu if row else 0

    api.store.create("pods", vm_pod("a", most=("4", 8)))
    await live.until(most, 4000)

    api.store.update("pods", "default/a", metadata(**runs_vm(vm="a", most=("6", 8))))

    await live.until(most, 6000)


async def test_the_source_of_a_migration_is_flagged_until_it_ends(live: Live, api: FakeApi) -> None:
    async def moving() -> tuple[int, int]:
        row = await live.front.row("u-a")
        return (row.moving, (await live.front.node()).migrating_cpu) if row else (-1, -1)

    api.store.create("pods", vm_pod("a", use="2"))
    await live.until(moving, (0, 0))

    api.store.create("virtualmachinemigrations", migration("a", "a"))
    await live.until(moving, (1, 2000))
    api.store.update("virtualmachinemigrations", "default/move-a", phase("Succeeded"))
    await live.until(moving, (0, 0))
    api.store.update("virtualmachinemigrations", "default/move-a", phase("Running"))
    await live.until(moving, (1, 2000))
    api.store.remove("virtualmachinemigrations", "default/move-a")
    await live.until(moving, (0, 0))

    assert await live.verify() == []


async def test_a_migration_that_ended_in_a_gap_flags_nothing(live: Live, api: FakeApi) -> None:
    async def moving() -> int:
        row = await live.front.row("u-a")
        return row.moving if row else -1

    api.store.create("pods", vm_pod("a"))
    api.store.create("virtualmachinemigrations", migration("a", "a"))
    await live.until(moving, 1)
    held = Held()
    api.next("watch", "virtualmachinemigrations", held)
    api.end_watches()
    await held.arrived.wait()
    api.store.remove("virtualmachinemigrations", "default/move-a")
    api.store.forget("virtualmachinemigrations")
    held.release.set()

    await live.until(moving, 0)


async def test_a_cluster_without_the_crds_is_followed(
    redis_url: str, raw_client: redis.asyncio.Redis
) -> None:
    async with FakeApi(with_vms=False) as api, starting(api, redis_url, raw_client) as start:
        cluster(api)
        api.store.create("pods", pod("web", node="n1", uid="u1", cpu="2"))
        live = await start()

        await live.lead()

        assert await live.reserved() == (2000, 64)


# Building


async def test_changes_during_a_build_are_in_what_is_published(
    start: StartLive, api: FakeApi
) -> None:
    live = await start()
    api.store.create("pods", pod("goes", node="n1", uid="u1"))
    load = live.reconciler.load_pods

    async def loading(listed: Any) -> None:
        await load(listed)
        api.store.remove("pods", "default/goes")
        api.store.create("pods", pod("comes", node="n1", uid="u2"))

    live.reconciler.load_pods = loading  # type: ignore[method-assign]
    await live.lead()

    await live.until_at("u2", "bound n1")
    await live.until_at("u1", "unknown")


async def test_a_build_that_the_ledger_interrupts_is_not_published(
    start: StartLive, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went wrong while facts were loaded was lost, and half of the books were published."""
    live = await start()
    api.store.create("pods", pod("web", node="n1", uid="u1", cpu="2"))
    put, troubles = Ledger.put_pod, [LedgerUnavailable("away")]

    async def troubled(self: Ledger, fact: PodFact, **more: Any) -> Any:
        if troubles:
            raise troubles.pop()
        return await put(self, fact, **more)

    monkeypatch.setattr(Ledger, "put_pod", troubled)

    with pytest.raises(LedgerUnavailable):
        await live.lead()

    assert await state(live) == "UNBUILT"
    await live.lead()
    assert await live.reserved() == (2000, 64)


async def test_a_lost_ledger_is_built_anew_after_the_bind_budget(
    start: StartLive, api: FakeApi
) -> None:
    budget = timedelta(milliseconds=300)
    live = await start(bind_budget=budget)
    api.store.create("pods", pod("web", node="n1", uid="u1", cpu="2"))
    await live.lead()
    await live.front.raw.flushall()
    assert await state(live) == "UNBUILT"
    began = asyncio.get_running_loop().time()

    building = asyncio.ensure_future(live.lead())
    refused = await live.front.reserve(pod("new", uid="u2", namespace="default"))
    filtered = await live.front.filter(pod("new", uid="u2", namespace="default"))
    await building

    assert asyncio.get_running_loop().time() - began >= budget.total_seconds()
    assert (refused[0], filtered.error) == ("Error", "the ledger is not built")
    assert await live.reserved() == (2000, 64)
    assert await live.front.raw.hget(KEYS.key("meta"), "cluster") == b"uid-of-kube-system"
    assert await live.verify() == []


async def test_a_first_build_does_not_wait(start: StartLive) -> None:
    live = await start(bind_budget=timedelta(hours=1))

    await live.lead()

    assert await state(live) == "SETTLED"


async def test_one_that_saw_the_books_waits_before_it_builds_them(
    live: Live, start: StartLive
) -> None:
    """Only who had led before waited, though any replica may have sent a Binding."""
    other = await start(name="r2", bind_budget=timedelta(hours=1))
    with pytest.raises(LostLead):
        await other.lead()
    await live.front.raw.flushall()

    building = asyncio.ensure_future(other.lead())
    await live.until(lambda: live.front.raw.exists(KEYS.key("lease")), 1)

    assert await state(live) == "UNBUILT"
    building.cancel()
    await asyncio.gather(building, return_exceptions=True)


async def test_a_ledger_that_is_another_clusters_by_now_is_not_built(start: StartLive) -> None:
    live = await start()
    await live.front.raw.hset(KEYS.key("meta"), "cluster", "another")

    with pytest.raises(ClusterUnavailable, match="is that of the cluster another"):
        await live.lead()


# Comparing


async def test_compare_repairs_and_counts_and_journals_what_nobody_told(
    live: Live, start: StartLive, api: FakeApi
) -> None:
    for number in range(3):
        made = pod(f"web-{number}", node="n1", uid=f"u{number}", cpu="1", memory="1Gi")
        api.store.create("pods", made)
        await live.until_at(f"u{number}", "bound n1")
    await live.leader.resign()
    other = await start(name="r2")
    await _tell_other(other, "u0")  # a row changed behind our back
    api.store.update("pods", "default/web-1", phase("Failed"))  # a lost event
    api.store.remove("pods", "default/web-2")  # gone while nobody led
    api.store.create("pods", pod("web-3", node="n1", uid="u3", cpu="2", memory="1Gi"))
    api.store.create("nodes", node("n2"))

    await other.lead()

    assert [await other.where(f"u{number}") for number in range(4)] == [
        "bound n1",
        "unknown",
        "unknown",
        "bound n1",
    ]
    assert await other.reserved() == (3000, 2048)
    assert other.reconciler.repaired == 5
    compared = {(what, uid) for what, uid, why in await other.journal() if b"compare" in why}
    assert compared == {
        ("put_pod", "u0"),
        ("finish", "u1"),
        ("delete_pod", "u2"),
        ("put_pod", "u3"),
        ("put_node", "-"),
    }
    assert await other.verify() == []


async def _tell_other(live: Live, uid: str) -> None:
    """Book a falsehood about a pod under the version that it has."""
    fact = await live.source.read_pod(PodName("default/web-0"))
    assert fact is not None
    token = await live.front.raw.hget(KEYS.key("meta"), "fence")
    await live.front.ledger.put_pod(
        replace(fact, requests=Resources(7, 7)), leader=Leadership(token.decode())
    )
    assert await live.amount(uid) == (7, 0)


async def test_compare_finds_nothing_where_all_is_well(live: Live, api: FakeApi) -> None:
    api.store.create("nodes", node("n2"))
    api.store.create("pods", pod("plain", node="n1", uid="u1"))
    api.store.create("pods", pod("waits", uid="u2"))
    api.store.create("pods", pod("over", node="n2", uid="u3", phase="Succeeded"))
    api.store.create("pods", vm_pod("a", use="2"))
    api.store.create("pods", vm_pod("broken", annotations={"vm.neon.tech/resources": "{"}))
    await live.until_at("u-broken", "bound n1")
    assert (await live.front.reserve(api.store.get("pods", "default/waits")))[0] == "Success"
    assert await live.front.permit("a", 3, "2Gi") == (3, "2Gi")
    before = (await live.front.ledger.look()).version

    await live.compare()

    assert live.reconciler.repaired == 0
    assert (await live.front.ledger.look()).version == before
    assert await live.where("u2") == "held n1"
    assert live.reconciler.pending == {"u2"}


async def test_compare_keeps_what_was_bound_while_the_list_was_read(
    live: Live, api: FakeApi
) -> None:
    """Missing in the list, and in the cluster all the same: a live read decides."""
    scan = live.front.ledger.scan_pods

    async def scanning() -> Any:
        """The list is taken, the ledger not yet read."""
        late = api.store.create("pods", pod("late", uid="u1", cpu="2"))
        assert await live.front.bind(late) == ""
        return await scan()

    live.front.ledger.scan_pods = scanning  # type: ignore[method-assign]

    await live.compare()

    assert [each.path for each in api.requests("get", "pods")][-1].endswith("/pods/late")
    assert await live.where("u1") == "bound n1"
    await live.until_reserved(2000, 64)


@pytest.mark.parametrize("missing", [3, comparing.READ_ONE_BY_ONE + 1])
async def test_compare_reads_what_is_missing_or_many_by_one_list(
    live: Live, api: FakeApi, missing: int
) -> None:
    for number in range(missing):
        api.store.create("pods", pod(f"p{number}", uid=f"u{number}", node="n1", cpu="1m"))
    await live.until_at(f"u{missing - 1}", "bound n1")
    await live.leader._upkeep.stop()
    for number in range(missing):
        api.store.remove("pods", f"default/p{number}")
    lists, gets = len(api.requests("list", "pods")), len(api.requests("get", "pods"))

    await live.compare()

    is_list = missing > comparing.READ_ONE_BY_ONE
    assert len(api.requests("list", "pods")) - lists == (2 if is_list else 1)
    assert len(api.requests("get", "pods")) - gets == (0 if is_list else missing)
    assert await live.reserved() == (0, 0)
    assert live.reconciler.repaired == missing


async def test_compare_lists_nodes_too_where_many_are_missing(live: Live, api: FakeApi) -> None:
    names = [f"old-{number}" for number in range(comparing.READ_ONE_BY_ONE + 1)]
    for name in names:
        api.store.create("nodes", node(name))
    await live.until(lambda: live.front.raw.hlen(KEYS.key("nodes")), len(names) + 1)
    await live.leader._upkeep.stop()
    for name in names:
        api.store.remove("nodes", name)

    await live.compare()

    assert await live.front.raw.hkeys(KEYS.key("nodes")) == [b"n1"]
    assert api.requests("get", "nodes") == []


async def test_compare_goes_past_what_cannot_be_read(live: Live, api: FakeApi) -> None:
    """A pod that could be read once kept every later compare from coming to an end."""
    api.store.create("pods", pod("web", node="n1", uid="u1", cpu="2"))
    await live.until_at("u1", "bound n1")

    def spoil(found: Json) -> None:
        found["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "abc"

    api.store.update("pods", "default/web", spoil)
    await live.compare()

    assert await live.reserved() == (2000, 64)
    api.store.remove("pods", "default/web")
    await live.until_at("u1", "unknown")


async def test_compare_notices_a_cluster_that_went_back_and_builds_anew(
    live: Live, api: FakeApi
) -> None:
    """After a restore of etcd every fact is older than the ledger's, and was refused as such."""
    api.store.pass_version(5000)
    api.store.create("pods", pod("lost", node="n1", uid="u1", cpu="2"))
    await live.until_at("u1", "bound n1")
    await live.reconciler.stop()
    api.store.remove("pods", "default/lost")
    api.store.version = 3000
    for plural in ("pods", "nodes"):
        api.store.forget(plural)
    api.store.create("pods", pod("restored", node="n1", uid="u2", cpu="3"))
    api.store.update("nodes", "n1", metadata(labels={}))
    live.leader._has_caught_up = False

    with pytest.raises(ClusterWentBack):
        await live.lead()
    live.leader._went_back = True  # as `run` does
    await live.lead()

    assert (await live.where("u1"), await live.where("u2")) == ("unknown", "bound n1")
    assert await live.reserved() == (3000, 64)


async def test_the_config_that_has_changed_is_booked_by_a_compare(live: Live) -> None:
    """`system` changes what every node has; nodes may end over capacity."""
    assert not live.reconciler.is_due()
    config = b'{"nodeDefaults": {"cpu": {"system": "1"}, "memory": {"system": "1Gi"}, '
    config += b'"computeUnit": {"vCPUs": 0.25, "mem": 1}}, "memBlockSize": "1Gi"}'
    assert live.config.offer(config, version="2"), live.config.problems
    assert live.reconciler.is_due()

    await live.lead()

    assert (await live.front.node()).capacity == Resources(7000, 31 << 30)
    assert not live.reconciler.is_due()


async def test_a_compare_is_due_after_its_time(start: StartLive) -> None:
    live = await start(following=replace(FOLLOWING, compare_every=timedelta(milliseconds=1)))
    await live.lead()

    async def is_due() -> bool:
        return live.reconciler.is_due()

    await live.until(is_due, True)


# After a promotion


async def test_suspect_books_are_settled_by_a_compare_begun_after_the_bind_budget(
    start: StartLive, api: FakeApi
) -> None:
    budget = timedelta(milliseconds=200)
    live = await start(bind_budget=budget)
    await live.lead()
    lists = len(api.requests("list", "pods"))
    await live.front.loses_its_primary()
    assert await state(live) == "SUSPECT"
    began = asyncio.get_running_loop().time()

    comparing_ = asyncio.ensure_future(live.lead())
    await asyncio.sleep(0)
    assert (await live.front.reserve(pod("x", uid="ux", namespace="default")))[0] == "Error"
    await comparing_

    assert asyncio.get_running_loop().time() - began >= budget.total_seconds()
    assert len(api.requests("list", "pods")) == lists + 1
    assert await state(live) == "SETTLED"


async def test_an_epoch_that_began_during_the_compare_stays_suspect(live: Live) -> None:
    """It was settled though its own compare had not begun."""
    await live.front.loses_its_primary()
    assert await state(live) == "SUSPECT"
    compare = live.reconciler.compare

    async def losing_it_again(leader: Leadership) -> None:
        await compare(leader)
        await live.front.loses_its_primary()
        await live.front.ledger.look()

    live.reconciler.compare = losing_it_again  # type: ignore[method-assign]
    with pytest.raises(LedgerUnavailable):
        await live.lead()
    assert await state(live) == "SUSPECT"

    live.reconciler.compare = compare  # type: ignore[method-assign]
    await live.lead()
    assert await state(live) == "SETTLED"


# Leading


async def test_a_paused_former_leader_writes_nothing(
    live: Live, start: StartLive, api: FakeApi
) -> None:
    await live.front.raw.delete(KEYS.key("lease"))  # it has lapsed
    other = await start(name="r2")
    await other.lead()
    api.store.create("pods", pod("web", node="n1", uid="u1"))
    await other.until_at("u1", "bound n1")
    before = await other.front.dump()

    async def has_noticed() -> bool:
        try:
            live.reconciler.check()
        except LostLead:
            return True
        return False

    await live.until(has_noticed, True)
    with pytest.raises(LostLead):
        await live.lead()

    assert await other.front.dump() == before
    assert not live.leader.is_leading or live.leader._token == ""


async def test_a_leader_whose_watch_is_silent_gives_the_lease_up(
    start: StartLive, api: FakeApi
) -> None:
    live = await start(following=replace(FOLLOWING, silence=timedelta(milliseconds=100)))
    silent = Silence()
    api.next("watch", "pods", silent)
    await live.lead()

    async def is_silent() -> bool:
        await live.leader._try_turn()
        return not await live.front.raw.exists(KEYS.key("lease"))

    await live.until(is_silent, True)
    silent.over.set()

    assert not live.leader.is_leading


async def test_one_that_cannot_list_takes_no_lease(
    live: Live, start: StartLive, api: FakeApi
) -> None:
    """It took the lease again from those that see the cluster, and listed only then."""
    await live.leader.resign()
    live.leader._is_blind = True
    api.always("list", "nodes", Refuse(503, "ServiceUnavailable"))

    with pytest.raises(ClusterUnavailable):
        await live.lead()
    assert not await live.front.raw.exists(KEYS.key("lease"))

    api.always("list", "nodes", None)
    await live.lead()
    assert live.leader.is_leading


async def test_a_leader_whose_list_never_comes_gives_the_lease_up(
    start: StartLive, api: FakeApi
) -> None:
    live = await start(following=replace(FOLLOWING, list_silence=timedelta(milliseconds=200)))
    api.always("list", "pods", Silence(with_head=False))

    with pytest.raises(ClusterUnavailable, match="silent"):
        await live.lead()

    assert await state(live) == "UNBUILT"


async def test_run_leads_and_leaves_at_once_when_it_ends(
    live: Live, start: StartLive, api: FakeApi
) -> None:
    """Its lease was left to lapse, or even taken again, when it ended in the middle of a turn."""
    await live.leader.resign()
    async with Background() as background:
        background.start("leader", live.leader.run)

        async def leads() -> bool:
            return live.leader.is_leading

        await live.until(leads, True)

    assert not await live.front.raw.exists(KEYS.key("lease"))
    assert live.reconciler._tasks == []


async def test_run_begins_anew_after_a_bug(
    live: Live, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept the lease and failed in every turn."""
    monkeypatch.setattr("autoscale_enforcer.background.RESTART_AFTER", 0.001)
    bugs = [RuntimeError("a bug")]

    def check() -> None:
        if bugs:
            raise bugs.pop()

    monkeypatch.setattr(live.reconciler, "check", check)
    async with Background() as background:
        background.start("leader", live.leader.run)

        async def has_recovered() -> bool:
            return bool(background.failures) and live.leader.is_leading

        await live.until(has_recovered, True)

    assert background.failures == {"leader": 1}


async def test_what_the_world_has_forgotten_a_vm_does_not_bring_back(
    live: Live, api: FakeApi
) -> None:
    """The VM of a pod that went in a gap lived on, and booked it again with each of its changes."""
    api.store.create("virtualmachines", virtual_machine("vm-a"))
    api.store.create("pods", pod("vm-a-1", node="n1", uid="u1", **_owned_by("vm-a")))
    await live.until_at("u1", "bound n1")
    held = Held()
    api.next("watch", "pods", held)
    api.end_watches()
    await held.arrived.wait()
    api.store.remove("pods", "default/vm-a-1")
    api.store.forget("pods")
    held.release.set()
    await live.until_at("u1", "unknown")
    await live.front.raw.delete(KEYS.key("gone"))  # ten minutes later

    api.store.update("virtualmachines", "default/vm-a", _uses(3))
    api.store.create("virtualmachines", virtual_machine("vm-b"))
    api.store.create("pods", pod("vm-b-1", node="n1", uid="u2", **_owned_by("vm-b")))
    await live.until_at("u2", "bound n1")

    assert await live.where("u1") == "unknown"


async def test_build_and_lease_of_a_ledger_taken_by_another_is_left_alone(
    live: Live, start: StartLive
) -> None:
    other = await start(name="r2")

    taken, holder = await other.front.ledger.take_lease(
        holder="r2", token="t2", lifetime=timedelta(seconds=1)
    )

    assert (taken, holder) == (Lead.HELD, "r1")
    assert await live.where("nobody") == "unknown"
    assert PodUid("nobody") not in live.reconciler.pending
    await until(_true)


async def _true() -> bool:
    return True
