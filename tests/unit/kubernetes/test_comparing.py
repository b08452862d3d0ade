"""A full compare: what the ledger says other than the cluster is found, put right and counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.cluster_double import runs_vm
from tests.support.fake_api.faults import Foreign
from tests.support.fake_api.samples import Json, node, pod
from tests.support.fake_api.server import FakeApi
from tests.support.live import (
    FOLLOWING,
    Live,
    StartLive,
    metadata,
    phase,
)

from autoscale_enforcer.cluster.kubernetes import comparing
from autoscale_enforcer.cluster.upkeep import ClusterWentBack
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.ledger import Ledger
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


# Comparing


async def test_compare_repairs_and_counts_and_journals_what_nobody_told(
    live: Live, start_live: StartLive, api: FakeApi
) -> None:
    for number in range(3):
        made = pod(f"web-{number}", node="n1", uid=f"u{number}", cpu="1", memory="1Gi")
        api.store.create("pods", made)
        await live.until_at(f"u{number}", "bound n1")
    await live.leader.resign()
    other = await start_live(name="r2")
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


@pytest.mark.parametrize("is_takeover", [False, True], ids=["leads", "takes-over"])
async def test_compare_puts_sums_right_that_no_script_has_changed(
    live: Live, start_live: StartLive, api: FakeApi, *, is_takeover: bool
) -> None:
    """`verify` showed them, and no compare put them right."""
    api.store.create("nodes", node("n2"))
    for name in ("a", "b"):
        api.store.create("pods", pod(name, node="n1", uid=f"u-{name}", cpu="1"))
        await live.until_at(f"u-{name}", "bound n1")
    await live.until(lambda: live.front.raw.hlen(KEYS.key("nodes")), 2)
    await live.front.ledger.mirror.refresh()
    who = live
    if is_takeover:
        await live.leader.resign()
        who = await start_live(name="r2")
    for name in ("n1", "n2"):
        row = await live.front.node(name)
        row.reserved_cpu, row.pods = row.reserved_cpu + 500, row.pods + 1
        await live.front.raw.hset(KEYS.key("nodes"), name, row.encode())
    assert {breach.subject for breach in await live.verify()} == {"n1", "n2"}

    await who.compare()

    assert await live.verify() == []
    assert who.reconciler.repaired == 2
    assert [what for what, _, why in await live.journal() if b"compare" in why] == ["recount"] * 2
    await live.front.ledger.mirror.refresh()  # other replicas hear of it
    assert live.front.ledger.mirror.nodes[NodeName("n1")].reserved == Resources(2000, 128 * MIB)


async def test_compare_of_a_false_pod_leaves_no_false_sum(live: Live, api: FakeApi) -> None:
    """Its amount was taken off the node as the row had it, not as it had been put on."""
    api.store.create("pods", pod("web", node="n1", uid="u1", cpu="1"))
    await live.until_at("u1", "bound n1")
    row = await live.front.row("u1")
    assert row is not None
    row.cpu = row.charge_cpu = row.asked_cpu = 400
    await live.front.raw.hset(KEYS.key("pods"), "u1", row.encode())

    await live.compare()

    assert await live.reserved() == (1000, 64)
    assert [breach for breach in await live.verify() if breach.invariant == 1] == []
    assert live.reconciler.repaired == 2


async def test_compare_finds_nothing_where_all_is_well(live: Live, api: FakeApi) -> None:
    api.store.create("nodes", node("n2"))
    api.store.create("pods", pod("plain", node="n1", uid="u1"))
    api.store.create("pods", pod("waits", uid="u2"))
    api.store.create("pods", pod("over", node="n2", uid="u3", phase="Succeeded"))
    api.store.create("pods", vm_pod("a", use="2"))
    api.store.create("pods", vm_pod("broken", annotations={"vm.neon.tech/resources": "{"}))
    api.store.create("pods", vm_pod("spoilt", use="2"))
    await live.until_amount("u-spoilt", 2000, 1024)
    api.store.update("pods", "default/spoilt", _spoil)
    await live.until(lambda: _is_broken(live, "u-spoilt"), True)
    await live.until_at("u-broken", "bound n1")
    assert (await live.front.reserve(api.store.get("pods", "default/waits")))[0] == "Success"
    assert await live.front.permit("a", 3, "2Gi") == (3, "2Gi")
    before = (await live.front.ledger.look()).version

    await live.compare()

    assert live.reconciler.repaired == 0
    assert (await live.front.ledger.look()).version == before
    assert await live.where("u2") == "held n1"
    assert live.reconciler.pending == {"u2"}


def _spoil(found: Json) -> None:
    """Its VM cannot be read any more; nor is it known to be autoscaled."""
    found["metadata"]["annotations"] = {"vm.neon.tech/resources": "{"}
    found["metadata"]["labels"] = {}


async def _is_broken(live: Live, uid: str) -> bool:
    row = await live.front.row(uid)
    return row is not None and bool(row.broken)


async def test_compare_keeps_what_was_bound_while_the_list_was_read(
    live: Live, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing in the list, and in the cluster all the same: a live read decides."""
    scan = Ledger.scan_pods

    async def scanning(ledger: Ledger) -> Any:
        """The list is taken, the ledger not yet read."""
        monkeypatch.setattr(Ledger, "scan_pods", scan)
        late = api.store.create("pods", pod("late", uid="u1", cpu="2"))
        assert await live.front.bind(late) == ""
        return await scan(ledger)

    monkeypatch.setattr(Ledger, "scan_pods", scanning)

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


async def test_compare_finds_that_a_node_left_whose_successor_cannot_be_read_yet(
    live: Live, api: FakeApi
) -> None:
    """A new node has no allocatable at first: the old one's capacity was given away for it."""
    await live.leader._upkeep.stop()
    api.store.remove("nodes", "n1")
    api.store.create("nodes", {**node("n1", uid="another"), "status": {}})

    await live.compare()

    assert await live.front.raw.hkeys(KEYS.key("nodes")) == []


async def test_compare_believes_no_404_of_a_proxy(live: Live, api: FakeApi) -> None:
    """Running pods that a list lacked were booked as deleted, and refused for ten minutes."""
    api.store.create("pods", pod("web", node="n1", uid="u1", cpu="2"))
    await live.until_at("u1", "bound n1")
    api.next("list", "pods", Foreign(200, '{"metadata":{"resourceVersion":"1002"},"items":[]}'))
    api.next("get", "pods", Foreign())

    await live.compare()

    assert await live.reserved() == (2000, 64)
    assert live.reconciler.repaired == 0


async def test_compare_asks_again_where_the_answer_was_no_object(live: Live, api: FakeApi) -> None:
    """A page counted as a node that cannot be read: the one that had left stayed for minutes."""
    api.store.create("nodes", node("n2"))
    await live.until(lambda: live.front.raw.hlen(KEYS.key("nodes")), 2)
    await live.leader._upkeep.stop()
    api.store.remove("nodes", "n2")
    api.next("get", "nodes", Foreign(200))

    await live.compare()

    assert await live.front.raw.hkeys(KEYS.key("nodes")) == [b"n1"]


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
    live.leader._disbelieved = "the cluster went back"  # as `run` does
    await live.lead()

    assert (await live.where("u1"), await live.where("u2")) == ("unknown", "bound n1")
    assert await live.reserved() == (3000, 64)


@pytest.mark.parametrize("key", ["names", "changes", "deadlines"])
async def test_a_list_of_the_ledger_that_was_evicted_is_noticed_and_all_built_anew(
    live: Live, api: FakeApi, key: str
) -> None:
    """The guard counts rows. Without deadlines no hold ever lapsed, without changes mirrors went
    stale, without names no agent found its pod."""
    api.store.create("pods", pod("runs", node="n1", uid="u1", cpu="2"))
    api.store.create("pods", pod("held", uid="u2", cpu="1"))
    await live.until_at("u1", "bound n1")
    await live.until_at("u2", "pending -")
    await live.front.reserve(api.store.get("pods", "default/held"))
    await live.front.raw.delete(KEYS.key(key))
    api.store.create("pods", pod("new", uid="u3", cpu="1"))
    await live.until_at("u3", "pending -")
    live.leader._has_caught_up = False

    await live.leader._try_turn()
    await live.leader._try_turn()

    assert await live.where("u1") == "bound n1"
    lost = [why for what, _, why in await live.journal() if what == "lost"]
    assert any(key.encode() in why for why in lost)
    assert await live.verify() == []


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


async def test_a_compare_is_due_after_its_time(start_live: StartLive) -> None:
    live = await start_live(following=replace(FOLLOWING, compare_every=timedelta(milliseconds=1)))
    await live.lead()

    async def is_due() -> bool:
        return live.reconciler.is_due()

    await live.until(is_due, True)
