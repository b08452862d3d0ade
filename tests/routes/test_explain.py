"""Why a pod fits or not, with numbers: the reasons are filter's own."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner, Result

from autoscale_enforcer.cli.main import main
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.policy.fit import Reason
from tests.support.cluster_double import ClusterDouble, runs_vm
from tests.support.replica import Replica

GIB = 1 << 30


@pytest.fixture
async def replica(replica: Replica, cluster: ClusterDouble) -> Replica:
    """n1 has 2 of 8 CPU left, n2 is too small, n3 is empty and n4 frozen; `web` waits for room."""
    cluster.pod("u1", node="n1", cpu="6", mem="1Gi")
    cluster.node("n2", cpu="2", mem="32Gi")
    cluster.node("n3")
    cluster.node("n4")
    cluster.pod("web", cpu="3", mem="2Gi")
    await replica.catch_up()
    await replica.ledger.freeze_grants(NodeName("n4"), context={})
    return replica


async def run(replica: Replica, *arguments: str) -> Result:
    url = f"http://127.0.0.1:{replica.ports['admin']}"
    words = ("explain", *arguments, "--admin", url)
    return await asyncio.to_thread(CliRunner().invoke, main, words)


async def test_explain_gives_filters_reasons_with_numbers(
    replica: Replica, cluster: ClusterDouble
) -> None:
    filtered = await replica.filter(cluster.touch("web"), "n1", "n2", "n3", "n4")

    result = await run(replica, "default/web", "--json")

    said = json.loads(result.output)
    reasons = {node["name"]: node["reason"] for node in said["nodes"] if not node["fits"]}
    n1 = said["nodes"][0]
    assert result.exit_code == 0
    assert reasons == filtered.failed | filtered.unresolvable
    assert reasons == {"n1": Reason.CPU, "n2": Reason.TOO_SMALL, "n4": Reason.FROZEN}
    assert n1["left"] == {"cpuMilli": 2000, "memoryBytes": 31 * GIB}
    assert n1["missing"] == {"cpuMilli": 1000, "memoryBytes": 0}
    assert said["needs"] == {"cpuMilli": 3000, "memoryBytes": 2 * GIB}


async def test_explain_says_it_for_people(replica: Replica) -> None:
    summary = (
        "1/4 nodes would do, 1 Grants are frozen by an operator, "
        "1 Insufficient cpu left by reservations, 1 Node is too small for the pod"
    )

    result = await run(replica, "default/web")

    assert result.output.splitlines() == [
        "Pod default/web is pending and needs 3 CPU and 2 GiB.",
        "  n1  Insufficient cpu left by reservations; left 2 CPU, 31 GiB; missing 1 CPU",
        "  n2  Node is too small for the pod; left 2 CPU, 32 GiB; missing 1 CPU",
        "  n3  fits; left 8 CPU, 32 GiB",
        "  n4  Grants are frozen by an operator; left 8 CPU, 32 GiB",
        summary,
    ]


async def test_explain_of_one_node_exits_with_1_where_the_pod_does_not_fit(
    replica: Replica,
) -> None:
    refused, fits = [await run(replica, "default/web", "--node", node) for node in ("n1", "n3")]

    assert (refused.exit_code, fits.exit_code) == (1, 0)
    assert "n3" not in refused.output


async def test_explain_of_a_bound_pod_names_its_node(replica: Replica) -> None:
    result = await run(replica, "default/u1")

    assert result.output.startswith("Pod default/u1 is bound on n1 and needs 6 CPU and 1 GiB.")
    assert "  n3  Pod is bound or being bound to another node" in result.output


async def test_explain_discounts_what_a_vm_needs(replica: Replica, cluster: ClusterDouble) -> None:
    annotations = runs_vm(use="3", slots=2)["annotations"]
    overcommit = {"vm.neon.tech/overcommit": '{"cpu": "1.5", "memory": "1"}'}
    cluster.pod("vm-1", metadata=runs_vm() | {"annotations": annotations | overcommit})
    await replica.catch_up()

    result = await run(replica, "default/vm-1", "--node", "n1")

    assert result.output.startswith("Pod default/vm-1 is pending and needs 2 CPU and 2 GiB.")
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("default/nobody",), 4, "pod default/nobody is not known"),
        (("default/web", "--node", "n9"), 4, "node n9 is not known"),
        (("web",), 2, "'web' is not NAMESPACE/NAME"),
    ],
)
async def test_explain_of_what_is_not_there(
    replica: Replica, arguments: tuple[str, ...], code: int, words: str
) -> None:
    result = await run(replica, *arguments)

    assert result.exit_code == code
    assert words in result.output


async def test_explain_changes_nothing(replica: Replica) -> None:
    before = await replica.dump()

    await run(replica, "default/web")

    assert await replica.dump() == before
