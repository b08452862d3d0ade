"""Facts: what the leader's watches make of nodes, pods, VMs and migrations."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis.asyncio
from tests.support.cluster_double import runs_vm
from tests.support.fake_api.faults import Foreign, Held, Refuse, error_event
from tests.support.fake_api.samples import Json, node, pod, virtual_machine
from tests.support.fake_api.server import FakeApi
from tests.support.live import (
    Live,
    at,
    cluster,
    metadata,
    phase,
    starting,
)

from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.model.ids import NodeName, PodName
from autoscale_enforcer.model.resources import Resources

MIB = 1 << 20
KEYS = Keys("default")
HELD = "2026-01-01T00:00:00Z"


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


async def test_filter_bind_and_fact_see_one_and_the_same_overcommit(
    live: Live, api: FakeApi
) -> None:
    """A factor on the VM object alone counted in the leader's fact and not in a bind."""
    machine = virtual_machine("a")
    machine["metadata"]["annotations"] = {"vm.neon.tech/overcommit": '{"cpu": 2}'}
    api.store.create("virtualmachines", machine)
    made = pod("a", uid="u-a", namespace="default", **runs_vm(use="2", vm="a"))
    api.store.create("pods", made)

    await live.front.filter(made)
    assert await live.front.bind(made) == ""
    at_bind = await live.reserved()
    api.store.update("pods", "default/a", phase("Running"))
    version = api.store.get("pods", "default/a")["metadata"]["resourceVersion"]

    async def booked_version() -> str:
        row = await live.front.row("u-a")
        return row.rv if row else ""

    await live.until(booked_version, version)
    assert at_bind == await live.reserved() == (2000, 1024)


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


async def test_a_vm_goes_on_counting_while_its_kind_is_not_served(live: Live, api: FakeApi) -> None:
    """An API server that has just started says so of every CRD: their VMs' room was given away."""
    api.store.create("virtualmachines", virtual_machine("vm-a", cpus=(1, 2, 4)))
    api.store.create("pods", pod("vm-a", node="n1", uid="u1", cpu="100m", **_owned_by("vm-a")))
    await live.until_amount("u1", 2000, 1024)

    api.next("watch", "virtualmachines", error_event())
    api.next("list", "virtualmachines", Foreign(404, "404 page not found"))
    api.end_watches()

    async def is_unreadable() -> int:
        row = await live.front.row("u1")
        return row.broken if row else 0

    await live.until(is_unreadable, 1)
    assert await live.amount("u1") == (2000, 1024)
    await live.compare()
    assert (await live.amount("u1"), await is_unreadable()) == ((2000, 1024), 0)


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

    comparison.pods = with_a_change_before  # type: ignore[method-assign, assignment]
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
    async with FakeApi(with_vms=False) as api, starting(api, redis_url, raw_client) as start_live:
        cluster(api)
        api.store.create("pods", pod("web", node="n1", uid="u1", cpu="2"))
        live = await start_live()

        await live.lead()

        assert await live.reserved() == (2000, 64)


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
