"""Rows 13, 18, 21 to 25, 32 and 33 of the field reports, from the API server to the ledger."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscale_enforcer.cluster.kubernetes.reflector import ReflectorSettings
from autoscale_enforcer.cluster.kubernetes.transport import ApiSettings
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.model.ids import NodeName
from tests.support.cluster_double import runs_vm
from tests.support.fake_api.faults import (
    Fault,
    Held,
    Lines,
    Refuse,
    Silence,
    error_event,
)
from tests.support.fake_api.samples import Json, node, pod, virtual_machine
from tests.support.fake_api.server import FakeApi
from tests.support.live import FOLLOWING, Live, StartLive, at, metadata, phase
from tests.support.replica import until

KEYS = Keys("default")
KIB = 1 << 10


def vm_pod(name: str, *, node: str = "n1", **runs: Any) -> Json:
    return pod(name, node=node, uid=f"u-{name}", **runs_vm(vm=name, **runs))


def filtered(name: str, uid: str, **spec: Any) -> Json:
    """A pod as kube-scheduler sends it."""
    return pod(name, uid=uid, namespace="default", resourceVersion="9", **spec)


# 13: an event that is missed or early


async def test_row_13_a_bound_vm_whose_event_is_late_gets_its_permit(
    live: Live, api: FakeApi
) -> None:
    """It got 404 for ever."""
    held = Held()
    api.next("watch", "pods", held)
    api.end_watches()
    await held.arrived.wait()
    api.store.create("pods", vm_pod("late", use="2"))

    assert await live.front.permit("late", 3, "1Gi") == (3, "1Gi")

    assert await live.amount("u-late") == (3000, 1024)
    held.release.set()
    await live.until(live.verify, [])


async def test_row_13_a_vm_pod_counts_by_its_own_annotation_before_its_vm_is_there(
    live: Live, api: FakeApi
) -> None:
    api.store.create("pods", vm_pod("early", use="2", slots=2))
    await live.until_reserved(2000, 2048)
    assert await live.front.permit("early", 3, "2Gi") == (3, "2Gi")

    api.store.create("virtualmachines", virtual_machine("early", cpus=(1, 2, 4)))
    api.store.create("pods", pod("later", node="n1", uid="u2", cpu="1"))
    await live.until_at("u2", "bound n1")

    assert await live.amount("u-early") == (3000, 2048)


@pytest.mark.parametrize(
    ("made", "status"),
    [
        (vm_pod("x", node=""), 404),
        (pod("x", node="n1", uid="u-x"), 400),
        (None, 404),
        ({**vm_pod("x"), "status": {"phase": "Succeeded"}}, 404),
    ],
    ids=["no node yet", "no VM", "absent", "finished"],
)
async def test_row_13_an_agent_is_told_what_its_pod_is(
    live: Live, api: FakeApi, made: Json | None, status: int
) -> None:
    if made:
        api.store.create("pods", made)

    assert (await live.front.ask("x", 1, "1Gi")).status == status


async def test_row_13_no_filter_waits_for_a_relist(live: Live, api: FakeApi) -> None:
    """Every filter timed out while one was under way."""
    held = Held()
    api.next("list", "pods", held)
    comparing = asyncio.ensure_future(live.compare())
    await held.arrived.wait()

    async with asyncio.timeout(30):
        answer = await live.front.filter(filtered("web", "u1"), "n1", "nobody-knows")

    assert (answer.passed, list(answer.failed)) == (["n1"], ["nobody-knows"])
    held.release.set()
    await comparing


# 18: finished pods


async def test_row_18_finished_pods_count_nowhere(
    live: Live, start_live: StartLive, api: FakeApi
) -> None:
    api.store.create("pods", pod("u1", node="n1", uid="u1", cpu="2"))
    await live.until_reserved(2000, 64)

    api.store.update("pods", "default/u1", phase("Succeeded"))
    await live.until_reserved(0, 0)
    for number in range(3):
        api.store.create("pods", pod(f"f{number}", node="n1", uid=f"f{number}", phase="Failed"))
    await live.compare()
    assert (await live.front.node()).pods == 0

    api.store.remove("pods", "default/u1")
    api.store.create("pods", pod("later", node="n1", uid="u2", cpu="1"))
    await live.until_at("u2", "bound n1")
    assert await live.reserved() == (1000, 64)  # the deletion took nothing more off

    await live.front.raw.flushall()
    other = await start_live(name="r2")
    await live.leader.resign()
    await other.lead()  # a cold start
    assert await other.reserved() == (1000, 64)
    over = {**filtered("over", "u9", cpu="1"), "status": {"phase": "Succeeded"}}
    await other.front.filter(over)
    assert await other.where("u9") == "unknown"
    assert await other.verify() == []


# 21 to 23: watches


@pytest.mark.parametrize(
    ("fault", "lists"),
    [(Refuse(410, "Expired"), 1), (error_event(), 1), (Lines(), 0)],
    ids=["410 at the start", "ERROR in the stream", "an empty body"],
)
async def test_row_21_what_went_and_came_in_a_gap_is_booked(
    live: Live, api: FakeApi, fault: Fault, lists: int
) -> None:
    """An empty body is no reason for a list."""
    for name in ("goes", "stays"):
        api.store.create("pods", pod(name, node="n1", uid=name, cpu="1", memory="1Gi"))
    await live.until_reserved(2000, 2048)
    held = Held()
    api.next("watch", "pods", fault, held)
    api.next("list", "pods", held)
    before = len(api.requests("list", "pods"))
    api.end_watches()
    await held.arrived.wait()
    api.store.remove("pods", "default/goes")
    api.store.create("pods", pod("comes", node="n1", uid="comes", cpu="3", memory="1Gi"))
    held.release.set()

    await live.until_reserved(4000, 2048)

    assert await live.where("goes") == "unknown"
    assert len(api.requests("list", "pods")) - before == lists
    assert await live.verify() == []


async def test_row_21_bookmarks_are_no_pods(live: Live, api: FakeApi) -> None:
    before = await live.front.dump()

    api.store.pass_version(1500)
    api.bookmark("pods")
    api.end_watches()
    watches = await api.until("watch", "pods", 2)

    assert watches[-1].query["resourceVersion"] == "1500"
    assert await live.front.dump() == before


@pytest.mark.parametrize("size", [300 * KIB, 1536 * KIB])
async def test_row_22_one_large_object_does_not_end_the_watch(
    live: Live, api: FakeApi, size: int
) -> None:
    api.store.create("pods", pod("large", node="n1", uid="u1", cpu="1", padding=size))
    api.store.create("virtualmachines", _large_vm(size))
    api.store.create("pods", pod("vm-a", node="n1", uid="u2", **runs_vm(annotations={})))
    api.store.create("pods", pod("later", node="n1", uid="u3", cpu="1"))

    await live.until_at("u3", "bound n1")
    await live.until_amount("u2", 1000, 1024)

    assert await live.where("u1") == "bound n1"
    assert [each.restarts for each in live.reconciler._reflectors] == [0] * 4


def _large_vm(size: int) -> Json:
    vm = virtual_machine("vm-a")
    vm["metadata"]["annotations"] = {"padding": "x" * size}
    return vm


async def test_row_23_a_half_open_watch_is_given_up_and_what_it_missed_is_booked(
    start_live: StartLive, api: FakeApi
) -> None:
    """It hung for ever without an error."""
    brief = ReflectorSettings(
        watch_lasts=timedelta(milliseconds=400),
        pause=timedelta(milliseconds=20),
        longest_pause=timedelta(milliseconds=40),
    )
    live = await start_live(
        following=replace(FOLLOWING, watches=brief),
        limits=ApiSettings(watch_slack=timedelta(milliseconds=200)),
    )
    silent = Silence()
    api.next("watch", "pods", silent)
    await live.lead()
    lists = len(api.requests("list", "pods"))
    api.store.create("pods", pod("web", node="n1", uid="u1", cpu="2"))
    _, _, _, pods = live.reconciler._reflectors
    ages = []

    async def is_booked() -> bool:
        ages.append(pods.age_of_last_event)
        answer = await live.front.filter(filtered("x", "ux"))  # the verbs keep answering
        assert answer.passed == ["n1"]
        return await live.where("u1") == "bound n1"

    await until(is_booked)
    silent.over.set()

    assert max(ages) > 0.3
    assert len(api.requests("list", "pods")) == lists  # from the last version on
    assert pods.restarts >= 1


# 24: autoscaling off and on


async def test_row_24_a_vm_without_autoscaling_follows_its_use(live: Live, api: FakeApi) -> None:
    def runs(use: int, *, autoscaling: bool = False) -> Json:
        return runs_vm(vm="a", use=use, autoscaling=autoscaling)

    api.store.create("pods", pod("a", node="n1", uid="u-a", **runs(2)))
    for use in (2, 4, 1):
        api.store.update("pods", "default/a", metadata(**runs(use)))
        await live.until_amount("u-a", 1000 * use, 1024)

    assert await live.front.permit("a", 4, "1Gi") == (1, "1Gi")  # off: what it holds
    assert await live.verify() == []


async def test_row_24_switching_autoscaling_off_ends_old_approvals(
    live: Live, api: FakeApi
) -> None:
    def runs(use: int, *, autoscaling: bool) -> Json:
        return runs_vm(vm="a", use=use, autoscaling=autoscaling)

    async def is_scaled() -> bool:
        row = await live.front.row("u-a")
        return bool(row and row.scaled)

    api.store.create("pods", pod("a", node="n1", uid="u-a", **runs(1, autoscaling=True)))
    await live.until_amount("u-a", 1000, 1024)
    assert await live.front.permit("a", 4, "1Gi") == (4, "1Gi")

    api.store.update("pods", "default/a", metadata(**runs(2, autoscaling=False)))
    await live.until_amount("u-a", 2000, 1024)
    api.store.update("pods", "default/a", metadata(**runs(2, autoscaling=True)))
    await live.until(is_scaled, True)

    assert await live.amount("u-a") == (2000, 1024)
    assert await live.front.permit("a", 2, "1Gi") == (2, "1Gi")
    assert await live.verify() == []


# 25: bad objects


async def test_row_25_bad_objects_stop_nothing(
    live: Live, api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    api.store.create("pods", pod("abc", node="n1", uid="u-abc", cpu="abc"))
    bare = runs_vm(vm="bare", annotations={})
    api.store.create("pods", pod("bare", node="n1", uid="u-bare", cpu="1m", **bare))
    api.store.create("pods", vm_pod("broken", annotations={"vm.neon.tech/resources": "{"}))
    for number in range(10):
        api.store.create("pods", pod(f"good-{number}", node="n1", uid=f"g{number}", cpu="100m"))

    await live.until_at("g9", "bound n1")

    assert {await live.where(f"g{number}") for number in range(10)} == {"bound n1"}
    assert await live.where("u-abc") == "unknown"
    assert live.reconciler.readings()["bad_objects"] == 1
    assert "default/abc: spec.containers" in caplog.text
    for name, words in (("bare", "missing"), ("broken", "vm.neon.tech/resources")):
        answer = await live.front.ask(name, 2, "1Gi")
        assert (answer.status, f"default/{name}" in answer.text) == (503, True)
        assert words in answer.text
    refused = await live.front.filter(api.store.get("pods", "default/abc"))
    assert refused.unresolvable == {"n1": refused.unresolvable["n1"]}
    assert refused.passed == []
    assert await live.verify() == []


async def test_row_25_a_bad_object_is_mended_by_an_update(live: Live, api: FakeApi) -> None:
    api.store.create("pods", pod("abc", node="n1", uid="u1", cpu="abc"))
    api.store.create("pods", vm_pod("broken", annotations={"vm.neon.tech/resources": "{"}))
    api.store.create("nodes", node("n2", cpu="many"))
    await live.until_at("u-broken", "bound n1")
    assert (await live.front.ask("broken", 2, "1Gi")).status == 503

    def mend(found: Json) -> None:
        found["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"

    async def has_n2() -> bool:
        await live.front.ledger.mirror.refresh()
        return NodeName("n2") in live.front.ledger.mirror.nodes

    api.store.update("pods", "default/abc", mend)
    api.store.update("pods", "default/broken", metadata(**runs_vm(vm="broken", use="2")))
    api.store.update("nodes", "n2", lambda found: found["status"]["allocatable"].update(cpu="4"))

    await live.until_amount("u1", 2000, 64)
    await live.until_amount("u-broken", 2000, 1024)
    await live.until(has_n2, True)
    assert await live.front.permit("broken", 3, "1Gi") == (3, "1Gi")


# 32: serving before all state is in


async def test_row_32_nothing_is_answered_before_everything_is_handled(
    start_live: StartLive, api: FakeApi
) -> None:
    api.store.create("nodes", node("n2"))
    daemon = pod("daemon", node="n1", uid="u1", cpu="2")
    daemon["metadata"]["ownerReferences"] = [
        {"kind": "DaemonSet", "apiVersion": "apps/v1", "name": "d"}
    ]
    api.store.create("pods", daemon)
    api.store.create("pods", pod("others", node="n2", uid="u2", cpu="3"))
    held = {plural: Held() for plural in ("virtualmachines", "nodes", "pods")}
    api.next("list", "nodes", None)  # whether there is a cluster at all
    for plural, fault in held.items():
        api.next("list", plural, fault)
    live = await start_live()
    building = asyncio.ensure_future(live.lead())

    for fault in held.values():
        await fault.arrived.wait()
        answer = await live.front.filter(filtered("web", "u9"), "n1", "n2")
        ready = await live.front.send("admin", "/readyz", method="GET")
        assert (answer.passed, bool(answer.error), ready.status) == ([], True, 503)
        assert (await live.front.ask("x", 1, "1Gi")).status == 503
        assert (await live.front.bind(filtered("web", "u9"))) != ""
        fault.release.set()
    await building

    assert (await live.front.send("admin", "/readyz", method="GET")).status == 200
    assert (await live.reserved("n1"), await live.reserved("n2")) == ((2000, 64), (3000, 64))
    assert (await live.front.filter(filtered("web", "u9"), "n1")).passed == ["n1"]


async def test_row_32_pods_seen_before_their_node_are_kept_for_it(live: Live, api: FakeApi) -> None:
    api.store.create("pods", pod("early", node="n9", uid="u1", cpu="2"))
    await live.until_at("u1", "bound n9")
    assert (await live.front.node("n9")).absent == 1
    assert (await live.front.filter(filtered("web", "u9"), "n9")).passed == []

    api.store.create("nodes", node("n9", cpu="4"))

    async def row() -> tuple[int, int, int]:
        found = await live.front.node("n9")
        return found.absent, found.cap_cpu, found.reserved_cpu

    await live.until(row, (0, 4000, 2000))
    assert await live.verify() == []


# 33: a crash between hold and bind


async def test_row_33_a_hold_left_behind_is_settled_by_a_read_begun_later(
    start_live: StartLive, api: FakeApi
) -> None:
    """No node-wide lock; and clean-up from an old list removed a hold that was in flight."""
    first = await start_live(name="a", replica={"hold_lifetime": timedelta(seconds=2)})
    await first.lead()
    for name in ("stays", "lands"):
        api.store.create("pods", pod(name, uid=f"u-{name}", cpu="2"))
        await first.until_at(f"u-{name}", "pending -")
        taken = await first.front.reserve(api.store.get("pods", f"default/{name}"))
        assert taken == ("Success", [])
    # "a" is killed here. "b" binds there at once:
    second = await start_live(name="b")
    api.store.create("pods", pod("other", uid="u-other", cpu="2"))
    assert await second.front.bind(api.store.get("pods", "default/other")) == ""
    await second.leader._sweeper.sweep()
    await first.compare()
    assert await second.where("u-lands") == "held n1"

    api.store.update("pods", "default/lands", at(nodeName="n1"))
    await first.reconciler.stop()
    await second.front.sweep(lapsed=1)

    async def settled() -> list[str]:
        await second.leader._sweeper.sweep()
        return [await second.where("u-stays"), await second.where("u-lands")]

    await second.until(settled, ["pending -", "bound n1"])
    assert await second.reserved() == (4000, 128)
    assert await second.verify() == []
