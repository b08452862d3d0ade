"""A dry compare shows what a compare would change, at any replica, and changes nothing."""

from __future__ import annotations

import pytest
from tests.support.cluster_double import runs_vm
from tests.support.fake_api.samples import node, pod
from tests.support.fake_api.server import FakeApi
from tests.support.live import Live, StartLive, phase

from autoscale_enforcer.cluster.differences import Difference
from autoscale_enforcer.cluster.kubernetes.differing import find_differences
from autoscale_enforcer.cluster.upkeep import ClusterWentBack
from autoscale_enforcer.ledger.keys import Keys

KEYS = Keys("default")


async def differences(live: Live) -> list[Difference]:
    return await find_differences(live.client, live.front.ledger, live.config)


async def test_dry_compare_finds_what_a_compare_would_put_right(
    live: Live, start_live: StartLive, api: FakeApi
) -> None:
    for number in range(3):
        made = pod(f"web-{number}", node="n1", uid=f"u{number}", cpu="1", memory="1Gi")
        api.store.create("pods", made)
        await live.until_at(f"u{number}", "bound n1")
    other = await start_live(name="r2")
    same = await differences(other)
    await live.leader.resign()
    api.store.update("pods", "default/web-1", phase("Failed"))
    api.store.remove("pods", "default/web-2")
    api.store.create("pods", pod("web-3", node="n1", uid="u3", cpu="2", memory="1Gi"))
    api.store.create("nodes", node("n2"))
    before = await other.front.dump()

    found = await differences(other)

    unchanged = await other.front.dump() == before
    shown = {
        (each.kind, each.name): (each.ledger.split(",")[0], each.cluster.split(",")[0])
        for each in found
    }
    assert same == []
    assert unchanged
    assert shown == {
        ("node", "n2"): ("nothing", shown["node", "n2"][1]),
        ("pod", "default/web-1"): ("bound on n1", "finished"),
        ("pod", "default/web-2"): ("bound on n1", "gone"),
        ("pod", "default/web-3"): ("nothing", "bound on n1"),
    }
    await other.lead()
    assert other.reconciler.repaired == len(found)
    assert await differences(other) == []


async def test_dry_compare_finds_sums_that_no_script_has_changed(live: Live) -> None:
    row = await live.front.node("n1")
    row.reserved_cpu += 500
    await live.front.raw.hset(KEYS.key("nodes"), "n1", row.encode())

    (found,) = await differences(live)

    assert (found.kind, found.name) == ("node", "n1")
    assert found.ledger.startswith("sums of 500m")
    assert found.cluster.startswith("sums of 0m")


async def test_dry_compare_reads_vms_with_their_objects(live: Live, api: FakeApi) -> None:
    """A pod without the annotation, and its VM's object: read apart, they would always differ."""
    made = pod("vm-1", node="n1", uid="u1", **runs_vm(vm="vm-1", annotations={}))
    guest = {
        "cpus": {"min": "1", "max": "4", "use": "2"},
        "memorySlots": {"min": 1, "max": 4, "use": 2},
        "memorySlotSize": "1Gi",
    }
    api.store.create("virtualmachines", {"metadata": {"name": "vm-1"}, "spec": {"guest": guest}})
    api.store.create("pods", made)
    await live.until_amount("u1", 2000, 2048)

    assert await differences(live) == []


async def test_dry_compare_leaves_what_cannot_be_read(live: Live, api: FakeApi) -> None:
    api.store.create("pods", pod("web", node="n1", uid="u1", cpu="1"))
    await live.until_at("u1", "bound n1")

    def spoil(found: dict[str, object]) -> None:
        found["spec"] = {
            "nodeName": "n1",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "abc"}}}],
        }

    api.store.update("pods", "default/web", spoil)

    assert await differences(live) == []


async def test_dry_compare_tells_a_cluster_that_went_back(live: Live, api: FakeApi) -> None:
    row = await live.front.node("n1")
    row.rv = "9" * 15
    await live.front.raw.hset(KEYS.key("nodes"), "n1", row.encode())
    await live.front.ledger.mirror.refresh()
    live.front.ledger.mirror._epoch = ""

    with pytest.raises(ClusterWentBack):
        await differences(live)
