"""Rows of the field reports with area agent protocol, through the real door."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from autoscale_enforcer.config.settings import parse_compute_unit
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, Json, pod_json, runs_vm
from tests.support.replica import UNIT, Replica

GI = 1 << 30


@pytest.fixture
async def vm(start: StartReplica, cluster: ClusterDouble) -> Replica:
    """`vm-1` has 1 CPU and 1Gi; agents below v4.0 are welcome."""
    replica = await start(compute_unit=parse_compute_unit("250m/1Gi"))
    cluster.pod("vm-1", node="n1", metadata=runs_vm())
    await replica.lead()
    return replica


@pytest.mark.parametrize(
    "more",
    [
        {"metrics": None},
        {"metrics": {}},
        {"metrics": {"loadAvg1M": 1.5, "new": {"deep": [1]}}},
        {"new": 1, "resources": {"vCPUs": 2, "mem": "1Gi", "new": None}},
        {"pod": {"namespace": "default", "name": "vm-1", "uid": "x"}},
        {"computeUnit": {**UNIT, "new": {}}},
    ],
)
async def test_row_10_missing_metrics_and_new_fields_are_no_error(vm: Replica, more: Json) -> None:
    """Missing metrics crashed the handler; new fields were refused."""
    assert await vm.permit("vm-1", 2, "1Gi", **more) == (2, "1Gi")


async def test_row_10_metrics_may_be_left_out(vm: Replica) -> None:
    body = {
        "protoVersion": 7,
        "pod": {"namespace": "default", "name": "vm-1"},
        "computeUnit": UNIT,
        "resources": {"vCPUs": 2, "mem": "1Gi"},
    }

    assert (await vm.send("agent", "/", body)).status == 200


@pytest.mark.parametrize("version", range(1, 8))
async def test_row_10_both_ends_of_the_range_are_spoken(vm: Replica, version: int) -> None:
    """An off-by-one version bound turned good agents away."""
    mem: Any = "1Gi" if version >= 6 else 1

    reply = await vm.ask("vm-1", 2, mem, protoVersion=version, metrics={})

    assert (reply.status, reply.json["permit"]) == (200, {"vCPUs": 2, "mem": mem})


@pytest.mark.parametrize("version", [None, 0, 8, -1, 7.5, "7", 2**63, 2**64])
async def test_row_10_other_versions_are_refused_with_the_range(vm: Replica, version: Any) -> None:
    reply = await vm.ask("vm-1", 2, "1Gi", protoVersion=version)

    assert (reply.status, reply.kind) == (400, "text/plain")
    assert reply.text.startswith("protoVersion: ")
    if isinstance(version, int) and abs(version) < 2**63:
        assert "we speak v1.0 to v5.0, which is 1 to 7" in reply.text


async def test_row_11_bounds_need_not_be_multiples_of_the_unit(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Such a VM was refused."""
    cluster.pod("vm-a", node="n1", metadata=runs_vm("1", 1, most=("1", 1)))
    await replica.catch_up()
    unit = {"vCPUs": 1, "mem": "4Gi"}

    assert await replica.permit("vm-a", 1, "1Gi", computeUnit=unit) == (1, "1Gi")


async def test_row_11_each_resource_is_judged_alone(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("vm-b", node="n1", metadata=runs_vm("1", 1))
    cluster.pod("u0", node="n1", cpu="6400m")
    await replica.catch_up()

    assert await replica.permit("vm-b", 3, "3Gi") == ("1500m", "3Gi")


@pytest.mark.parametrize("unit", [{"vCPUs": 0, "mem": "1Gi"}, {"vCPUs": 1, "mem": 0}])
async def test_row_11_a_unit_with_a_zero_is_refused(vm: Replica, unit: Json) -> None:
    assert (await vm.ask("vm-1", 2, "1Gi", computeUnit=unit)).status == 400


@pytest.mark.parametrize(
    ("others", "has", "asks", "unit", "permit", "node"),
    [("3", "4", 8, 2, 6, 9000), ("10", "2", 3, 1, 2, 12000)],
    ids=["a", "b"],
)
async def test_row_12_what_is_held_is_not_added_to_what_is_asked(
    replica: Replica,
    cluster: ClusterDouble,
    others: str,
    has: str,
    asks: int,
    unit: int,
    permit: int,
    node: int,
) -> None:
    """A must-honour minimum was added on top; a subtraction wrapped on a node that was over."""
    cluster.node("n1", cpu="10")
    cluster.pod("vm-1", node="n1", metadata=runs_vm(has, 1, most=("16", 16)))
    cluster.pod("u0", node="n1", cpu=others)
    await replica.catch_up()
    last, step = {"vCPUs": int(has), "mem": "1Gi"}, {"vCPUs": unit, "mem": "1Gi"}

    told = await replica.permit("vm-1", asks, "4Gi", computeUnit=step, lastPermit=last)

    assert told == (permit, "4Gi")  # memory on its own
    assert (await replica.reserved())[0] == node


async def test_row_12_exactly_full_counts_as_fitting(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("vm-1", node="n1", metadata=runs_vm("4", 1))
    await replica.catch_up()

    assert (await replica.filter(pod_json("u1", cpu="4", mem="31Gi"))).passed == ["n1"]
    assert await replica.permit("vm-1", 8, "32Gi") == (8, "32Gi")
    assert (await replica.filter(pod_json("u2", cpu="0", mem="0"))).passed == ["n1"]


async def test_row_13_a_bound_vm_whose_event_is_late_is_answered(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """One missed or early event and the agent got 404 for ever. Its VM object is not there yet."""
    cluster.pod("vm-1", node="n1", metadata=runs_vm("2", 2))
    assert await replica.where("vm-1") == "unknown"

    assert await replica.permit("vm-1", 2, "2Gi") == (2, "2Gi")

    assert await replica.reserved() == (2000, 2048)
    assert "list_pods" in cluster.calls
    assert cluster.calls["list_pods"] == 1  # of the build: no relist


@pytest.mark.parametrize(
    ("pod", "status"),
    [({"metadata": runs_vm()}, 404), ({"node": "n1"}, 400), (None, 404)],
    ids=["unbound", "plain", "absent"],
)
async def test_row_13_others_are_told_what_they_are(
    replica: Replica, cluster: ClusterDouble, pod: Json | None, status: int
) -> None:
    if pod is not None:
        cluster.pod("u1", **pod)

    reply = await replica.ask("u1", 2, "1Gi")

    assert (reply.status, reply.kind) == (status, "text/plain")
    assert await replica.reserved() in {(0, 0), (1000, 1024)}  # a plain pod counts, as a fact


async def test_row_13_filter_never_waits_on_a_list(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Every filter timed out on a relist."""
    reached, go = asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        reached.set()
        await go.wait()

    cluster.before_list = pause
    catching_up = asyncio.ensure_future(replica.catch_up())
    await reached.wait()

    assert (await replica.filter(pod_json("u1"))).passed == ["n1"]

    go.set()
    await catching_up


async def test_row_25_an_agent_is_told_what_cannot_be_read_and_the_next_is_answered(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """One bad object stopped a worker or a handler."""
    broken = {"vm.neon.tech/resources": "{"}
    cluster.pod("vm-1", node="n1", metadata=runs_vm(annotations=broken))
    cluster.pod("vm-2", node="n1", metadata=runs_vm())
    await replica.catch_up()

    reply = await replica.ask("vm-1", 2, "1Gi")

    assert (reply.status, reply.kind) == (503, "text/plain")
    assert "default/vm-1" in reply.text
    assert "metadata.annotations['vm.neon.tech/resources']" in reply.text
    assert await replica.permit("vm-2", 2, "1Gi") == (2, "1Gi")
