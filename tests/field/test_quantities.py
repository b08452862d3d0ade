"""Rows of the field reports with area quantities, through the real doors and into the books."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cluster_double import ClusterDouble, Json, pod_json, runs_vm
from tests.support.replica import Replica

GI, MI = 1 << 30, 1 << 20


async def booked(replica: Replica, pod: Json) -> tuple[int, int]:
    """What a pod is booked with once it is reserved."""
    assert await replica.reserve(pod) == ("Success", [])
    row = await replica.row(pod["metadata"]["uid"])
    assert row is not None
    return row.cpu, row.mem


def container(cpu: object, mem: object = "1Mi", **more: object) -> Json:
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": mem}}, **more}


def sidecar(cpu: object, mem: object = "1Mi") -> Json:
    return container(cpu, mem, restartPolicy="Always")


@pytest.mark.parametrize(
    ("mem", "expected"),
    [
        ("129e6", 129_000_000),
        ("128974848000m", 128_974_848),
        ("644245094400m", 644_245_095),
        ("123Mi", 128_974_848),
        ("1.5Gi", 1_610_612_736),
        ("0.1Gi", 107_374_183),
        (None, 0),
    ],
)
async def test_row_14_memory_is_read_exactly(replica: Replica, mem: object, expected: int) -> None:
    """Exponent form and milli-bytes were misread."""
    assert await booked(replica, pod_json("u1", cpu="1", mem=mem)) == (1000, expected)


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [("0.5", 500), ("100u", 1), (".25", 250), ("+1", 1000), (2, 2000), (None, 0)],
)
async def test_row_14_cpu_is_read_exactly(replica: Replica, cpu: object, expected: int) -> None:
    assert await booked(replica, pod_json("u1", cpu=cpu, mem="1Mi")) == (expected, MI)


async def test_row_14_a_node_has_what_is_allocatable(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Fractional node CPU was misread, and capacity used in place of allocatable."""
    node = cluster.node("n2", cpu="3920m", mem="15251156Ki")
    node["status"]["capacity"] = {"cpu": "4", "memory": "16Gi"}
    await replica.catch_up()

    reply = await replica.send("admin", "/api/v1/nodes/n2", method="GET")

    assert reply.json["capacity"] == {"cpuMilli": 3920, "memoryBytes": 15_617_183_744}


@pytest.mark.parametrize(("cpu", "out"), [("250m", "250m"), ("1000m", 1), ("1500m", "1500m")])
@pytest.mark.parametrize(
    ("mem", "told"),
    [(512, 512), ("1536Mi", "1536Mi"), ("4Gi", "4Gi"), (1_000_000_000, "1000000000")],
)
async def test_row_15_amounts_leave_as_go_writes_them(
    replica: Replica, cluster: ClusterDouble, cpu: object, out: object, mem: object, told: object
) -> None:
    """Amounts left as floats or with exponents; older peers expect whole CPUs as numbers."""
    cluster.pod("vm-1", node="n1", metadata=runs_vm())
    await replica.catch_up()

    permit = await replica.permit("vm-1", cpu, mem)

    assert permit == (out, told)
    assert [type(value) for value in permit] == [type(out), type(told)]


@pytest.mark.parametrize("cpu", [0.25, "250m", "0.25"])
@pytest.mark.parametrize("mem", [4294967296, "4Gi", "4294967296", "4096Mi"])
async def test_row_15_every_spelling_is_taken_alike(
    replica: Replica, cluster: ClusterDouble, cpu: Any, mem: Any
) -> None:
    cluster.pod("vm-1", node="n1", metadata=runs_vm())
    await replica.catch_up()

    assert await replica.permit("vm-1", cpu, mem) == ("250m", "4Gi")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {
                "initContainers": [sidecar("100m", "10Mi"), container("200m", "300Mi")],
                "containers": [container("100m", "200Mi")],
                "overhead": {"cpu": "50m", "memory": "5Mi"},
            },
            (350, 315),
        ),
        (
            {
                "initContainers": [container("200m", "10Mi"), sidecar("100m", "300Mi")],
                "containers": [container("100m", "20Mi")],
            },
            (200, 320),
        ),
        (
            {
                "initContainers": [container("2", "1Mi")],
                "containers": [container("1", "9Mi")],
            },
            (2000, 9),
        ),
    ],
    ids=["A", "B", "C"],
)
async def test_row_16_sidecars_init_containers_and_overhead_count(
    replica: Replica, spec: Json, expected: tuple[int, int]
) -> None:
    """They were left out or pooled. We book Kubernetes' own rule, not the reference's lower sum."""
    cpu, mem = await booked(replica, pod_json("u1", spec=spec))

    assert (cpu, mem // MI) == expected


def resized(spec: object, status: object, *conditions: Json) -> dict[str, Any]:
    """A bound pod of one container: what its spec says and what its node gives."""
    return {
        "spec": {"containers": [container(spec)]},
        "status": {
            "conditions": list(conditions),
            "containerStatuses": [
                {
                    "name": "c",
                    "resources": {"requests": {"cpu": status, "memory": "1Mi"}},
                    "allocatedResources": {"cpu": status, "memory": "1Mi"},
                }
            ],
        },
    }


INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}


@pytest.mark.parametrize(
    ("pod", "cpu"),
    [
        (resized("1", "4"), 4000),
        (resized("1", "1"), 1000),
        (resized("4", "1"), 4000),
        (resized("40", "1", INFEASIBLE), 1000),
    ],
    ids=["a", "a-done", "b", "c"],
)
async def test_row_17_an_in_place_resize_counts_as_it_stands(
    replica: Replica, pod: Json, cpu: int
) -> None:
    """In-place resize was ignored."""
    assert await booked(replica, pod_json("u1") | pod) == (cpu, MI)


async def test_row_17_pod_level_requests_replace_what_they_name(replica: Replica) -> None:
    spec = {
        "resources": {"requests": {"cpu": "2"}},
        "containers": [container("500m", "1Gi"), container("500m", "1Gi")],
        "overhead": {"cpu": "100m", "memory": "64Mi"},
    }

    assert await booked(replica, pod_json("u1", spec=spec)) == (2100, 2_214_592_512)


async def test_row_17_a_change_books_the_difference_once(
    replica: Replica, cluster: ClusterDouble
) -> None:
    first = pod_json("u1", node="n1") | resized("1", "1")
    first["spec"]["nodeName"] = "n1"
    cluster.put(first)
    await replica.catch_up()
    assert (await replica.reserved())[0] == 1000
    grown = pod_json("u1") | resized("4", "1")
    grown["spec"]["nodeName"] = "n1"
    cluster.put(grown)

    for _ in range(2):
        await replica.catch_up()

        assert (await replica.reserved())[0] == 4000
    assert (await replica.node()).pods == 1
