"""The agents' door: every recorded request, and what an agent is told when something is wrong."""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from autoscale_enforcer.config.scheduler_config import NodeConfig, SchedulerConfig
from autoscale_enforcer.config.settings import parse_compute_unit
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.objects.quantity import cpu_milli, mem_bytes
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, pod_json, runs_vm, vm_resources
from tests.support.replica import UNIT, Replica, Reply

GI = 1 << 30
RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/traffic/agent.jsonl").read_text().splitlines()
]
PLAIN = {"state": {"pod": "plain"}}


def what(case: dict[str, Any]) -> str:
    return f"{case['protocol']}-{case.get('why') or case.get('release', '')}".replace(" ", "_")


async def recorded_replica(
    case: dict[str, Any], start: StartReplica, cluster: ClusterDouble
) -> Replica:
    """A replica in the state that the line asks for; the pod is one that its ledger knows."""
    config = case.get("config", {"computeUnit": {"vCPUs": "250m", "mem": 1}, "memBlockSize": "1Gi"})
    state, name = case.get("state", {}), case["request"]["pod"]["name"]
    slot = mem_bytes(config["memBlockSize"])
    unit = config["computeUnit"]
    has = state.get("has", {"vCPUs": 1, "mem": "4Gi"})
    left = state.get("nodeLeft", {"vCPUs": "100", "mem": "1Ti"})
    cluster.node(
        "n1",
        cpu=f"{cpu_milli(has['vCPUs']) + cpu_milli(left['vCPUs'])}m",
        mem=mem_bytes(has["mem"]) + mem_bytes(left["mem"]),
    )
    metadata = runs_vm(has["vCPUs"], mem_bytes(has["mem"]) // slot, most=("64", 64))
    if name != "no-such-pod":
        is_vm = state.get("pod") != "plain"
        cluster.pod(name, node="n1", metadata=metadata if is_vm else None)
    node_config = NodeConfig(compute_unit=parse_compute_unit(f"{unit['vCPUs']}/{unit['mem']}Gi"))
    replica = await start(config=SchedulerConfig(mem_block_size=slot, nodes=node_config))
    await replica.lead()
    return replica


@pytest.mark.parametrize("case", RECORDED, ids=what)
async def test_agents_are_answered_as_recorded(
    case: dict[str, Any], start: StartReplica, cluster: ClusterDouble
) -> None:
    replica = await recorded_replica(case, start, cluster)
    expected = case["answer"]

    reply = await replica.send("agent", "/", case["request"])

    assert reply.status == expected["status"], reply
    assert reply.headers["X-Replica"] == "r1"
    assert reply.kind == expected.get("contentType", "application/json")
    if reply.status == 200:
        answer = reply.json
        check_permit(case, answer)
        assert list(answer) == expected.get("keys", list(answer))
        for field in ("permit", "resourceUnit"):
            assert answer.get(field) == expected.get(field, answer.get(field))


def check_permit(case: dict[str, Any], answer: dict[str, Any]) -> None:
    """Slots or bytes, and, where the line asks for nothing else, what was asked for."""
    permit, expected = answer["permit"], case["answer"]
    in_slots = expected.get("permitMem") == "slots"
    if in_slots:
        assert isinstance(permit["mem"], int)
    if "permit" not in expected and "permitMem" in expected:
        assert permit == case["request"]["resources"]


@pytest.fixture
async def vm(replica: Replica, cluster: ClusterDouble) -> Replica:
    """`vm-1` on n1 has 1 CPU and 1Gi, of 8 CPU and 16Gi at most."""
    cluster.pod("vm-1", node="n1", metadata=runs_vm())
    await replica.catch_up()
    return replica


async def test_an_agent_is_granted_what_fits(vm: Replica) -> None:
    assert await vm.permit("vm-1", 4, "8Gi") == (4, "8Gi")
    assert await vm.reserved() == (4000, 8192)


async def test_an_agent_tells_that_its_vm_has_shrunk(vm: Replica) -> None:
    await vm.permit("vm-1", 4, "8Gi")

    assert await vm.permit("vm-1", "500m", "2Gi") == ("500m", "2Gi")
    assert await vm.reserved() == (500, 2048)


async def test_what_is_missing_is_pressure(vm: Replica, cluster: ClusterDouble) -> None:
    cluster.pod("u1", node="n1", cpu="5")
    await vm.catch_up()

    assert await vm.permit("vm-1", 4, "2Gi") == (3, "2Gi")

    assert (await vm.node()).pressure.cpu == 1000


async def test_an_agent_asking_again_is_told_the_same(vm: Replica) -> None:
    await vm.permit("vm-1", 4, "8Gi")
    reserved = await vm.reserved()

    assert await vm.permit("vm-1", 4, "8Gi") == (4, "8Gi")
    assert await vm.reserved() == reserved


async def test_any_replica_answers_an_agent(vm: Replica, start: StartReplica) -> None:
    other = await start(name="r2")
    await vm.permit("vm-1", 4, "1Gi")

    assert await other.permit("vm-1", 5, "1Gi") == (5, "1Gi")


async def test_a_last_permit_counts_in_the_first_request_of_an_epoch_only(vm: Replica) -> None:
    last = {"vCPUs": 2, "mem": "2Gi"}
    pressed = pod_json("u1", cpu="7")
    await vm.reserve(pressed)  # no room is left to grow into

    assert await vm.permit("vm-1", 4, "4Gi", lastPermit=last) == (2, "4Gi")
    assert await vm.permit("vm-1", "1", "4Gi") == (1, "4Gi")
    assert await vm.permit("vm-1", 4, "4Gi", lastPermit=last) == (1, "4Gi")


async def test_autoscaling_off_is_answered_with_what_the_vm_has(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("vm-1", node="n1", metadata=runs_vm("2", 2, autoscaling=False))
    await replica.catch_up()
    before = await replica.dump()

    assert await replica.permit("vm-1", 4, "4Gi") == (2, "2Gi")
    assert await replica.dump() == before


async def test_a_vm_that_nobody_has_heard_of_is_read_live_once(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("vm-1", node="n1", metadata=runs_vm())
    cluster.calls.clear()

    assert await replica.permit("vm-1", 2, "1Gi") == (2, "1Gi")
    assert await replica.permit("vm-1", 3, "1Gi") == (3, "1Gi")

    assert cluster.calls == {"read_pod": 1}


async def test_a_held_vm_is_read_live_once_and_becomes_bound(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """The Binding was sent by another scheduler, and the agent was faster than the watch."""
    await replica.reserve(cluster.pod("vm-1", metadata=runs_vm()))
    cluster.pod("vm-1", node="n1", metadata=runs_vm())

    assert await replica.permit("vm-1", 2, "1Gi") == (2, "1Gi")
    assert await replica.where("vm-1") == "bound n1"
    assert await replica.verify() == []


@pytest.mark.parametrize(
    "pod", [None, {}, {"node": "n1", "phase": "Failed"}], ids=["absent", "unbound", "finished"]
)
async def test_a_pod_that_is_not_bound_is_not_found(
    replica: Replica, cluster: ClusterDouble, pod: dict[str, Any] | None
) -> None:
    if pod is not None:
        cluster.pod("vm-1", metadata=runs_vm(), **pod)
    before = await replica.dump()
    cluster.calls.clear()

    reply = await replica.ask("vm-1", 2, "1Gi")

    assert (reply.status, reply.kind) == (404, "text/plain")
    assert reply.text == "pod default/vm-1 is not known or not bound\n"
    assert cluster.calls == {"read_pod": 1}
    assert await replica.dump() == before


async def test_a_plain_pod_gets_no_permit(replica: Replica, cluster: ClusterDouble) -> None:
    cluster.pod("u1", node="n1")

    first = await replica.ask("u1", 2, "1Gi")  # known from a live read
    await replica.catch_up()
    second = await replica.ask("u1", 2, "1Gi")

    for reply in (first, second):
        assert (reply.status, reply.text) == (400, "pod: default/u1 runs no VM\n")


async def test_a_vm_that_cannot_be_read_keeps_its_permit(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Field report 25: the answer names the pod and what cannot be read."""
    cluster.pod("vm-1", node="n1", metadata=runs_vm(annotations={}))
    await replica.catch_up()

    reply = await replica.ask("vm-1", 2, "1Gi")

    assert (reply.status, reply.kind) == (503, "text/plain")
    assert reply.text == (
        "the VM of pod default/vm-1 cannot be read: "
        "metadata.annotations['vm.neon.tech/resources']: missing, "
        "and VirtualMachine vm-a is not known\n"
    )


async def test_a_vm_gets_its_permit_once_its_object_can_be_read(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("vm-1", node="n1", metadata=runs_vm(annotations={}))
    await replica.catch_up()
    cluster.vm("vm-a", vm_resources("1", 1), labels={"autoscaling.neon.tech/enabled": "true"})
    await replica.catch_up()

    assert await replica.permit("vm-1", 2, "1Gi") == (2, "1Gi")


async def test_what_is_older_than_the_last_change_is_refused_as_late(vm: Replica) -> None:
    """A send that had been given up ran three seconds later and undid a grant made since."""
    row = await vm.row("vm-1")
    assert row is not None
    row.stamp = 1 << 52
    await vm.raw.hset(Keys("default").key("pods"), "vm-1", row.encode())
    before = await vm.dump()

    reply = await vm.ask("vm-1", 2, "1Gi")

    assert (reply.status, reply.kind) == (503, "text/plain")
    assert reply.text == "something newer has changed the permit: ask again\n"
    assert await vm.dump() == before


async def test_agents_are_answered_503_while_redis_is_away(orphan: Replica) -> None:
    reply = await orphan.ask("vm-1", 2, "1Gi")

    assert (reply.status, reply.kind, reply.headers["X-Replica"]) == (503, "text/plain", "r1")


async def test_agents_are_answered_503_while_the_ledger_is_unbuilt(start: StartReplica) -> None:
    reply = await (await start()).ask("vm-1", 2, "1Gi")

    assert (reply.status, reply.text) == (503, "the ledger is not built\n")


async def test_agents_are_answered_503_while_an_unknown_pod_cannot_be_read(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.down = {"read_pod"}

    reply = await replica.ask("vm-1", 2, "1Gi")

    assert (reply.status, reply.text) == (503, "the API cannot be reached: read_pod\n")


async def test_nothing_grows_while_the_ledger_is_suspect_but_shrinking_goes_on(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    replica = await start(settle_after=timedelta(hours=1))
    for name in ("vm-1", "vm-2"):
        cluster.pod(name, node="n1", metadata=runs_vm())
    await replica.lead()
    await replica.loses_its_primary()

    grown = await replica.permit("vm-1", 4, "1Gi", lastPermit={"vCPUs": 2, "mem": "1Gi"})
    shrunk = await replica.permit("vm-1", "250m", "1Gi")

    assert (grown, shrunk) == ((2, "1Gi"), ("250m", "1Gi"))  # what was told before comes back


async def test_agents_below_v4_need_a_configured_unit(vm: Replica, start: StartReplica) -> None:
    slots = {"protoVersion": 5, "resources": {"vCPUs": 2, "mem": 2}}

    without = await vm.ask("vm-1", 0, 0, **slots)
    flagged = await start(compute_unit=parse_compute_unit("250m/1Gi"))

    assert (without.status, "--compute-unit" in without.text) == (400, True)
    assert (await flagged.ask("vm-1", 0, 0, **slots)).json["permit"] == {"vCPUs": 2, "mem": 2}


async def test_slots_are_the_vms_own_where_the_config_has_no_size(
    replica: Replica, cluster: ClusterDouble, start: StartReplica
) -> None:
    cluster.pod("vm-1", node="n1", metadata=runs_vm("1", 2, slot="512Mi", most=("8", 64)))
    await replica.catch_up()
    old = await start(compute_unit=parse_compute_unit("250m/512Mi"))

    reply = await old.ask("vm-1", 0, 0, protoVersion=4, resources={"vCPUs": 1, "mem": 5})

    assert reply.json == {
        "permit": {"vCPUs": 1, "mem": 5},
        "resourceUnit": {"vCPUs": "250m", "mem": 1},
    }
    assert await replica.reserved() == (1000, 5 * 512)


async def test_slots_of_a_vm_that_nobody_has_heard_of_are_read_live(
    replica: Replica, cluster: ClusterDouble, start: StartReplica
) -> None:
    old = await start(compute_unit=parse_compute_unit("250m/512Mi"))
    cluster.pod("vm-1", node="n1", metadata=runs_vm("1", 2, slot="512Mi", most=("8", 64)))
    cluster.calls.clear()

    reply = await old.ask("vm-1", 0, 0, protoVersion=5, resources={"vCPUs": 1, "mem": 5})

    assert reply.json == {"permit": {"vCPUs": 1, "mem": 5}}
    assert cluster.calls == {"read_pod": 1}


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"])
async def test_agents_must_post(replica: Replica, method: str) -> None:
    reply = await replica.send("agent", "/", method=method)

    assert (reply.status, reply.kind, reply.headers["X-Replica"]) == (400, "text/plain", "r1")


VALID: dict[str, Any] = {
    "protoVersion": 7,
    "pod": {"namespace": "default", "name": "vm-1"},
    "computeUnit": UNIT,
    "resources": {"vCPUs": 2, "mem": "1Gi"},
    "lastPermit": None,
    "metrics": None,
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("protoVersion", "7"),
        ("protoVersion", 7.5),
        ("pod", None),
        ("pod.name", None),
        ("pod.name", "a/b"),
        ("pod.namespace", 5),
        ("computeUnit", None),
        ("computeUnit.vCPUs", 0),
        ("computeUnit.mem", "0"),
        ("resources", []),
        ("resources.vCPUs", None),
        ("resources.vCPUs", -1),
        ("resources.vCPUs", 1e99),
        ("resources.mem", "65Ti"),
        ("resources.mem", True),
        ("resources.mem", "1Xi"),
        ("lastPermit.vCPUs", "abc"),
        ("metrics", 3),
    ],
)
async def test_agents_are_told_which_field_is_wrong(vm: Replica, path: str, value: object) -> None:
    body, before = copy.deepcopy(VALID), await vm.dump()
    *parents, last = path.split(".")
    place = body
    for key in parents:
        place[key] = place[key] or {}
        place = place[key]
    place[last] = value

    reply = await vm.send("agent", "/", body)

    assert (reply.status, reply.kind) == (400, "text/plain")
    assert reply.text.startswith(path)
    assert await vm.dump() == before


async def test_agents_are_told_nothing_that_could_be_taken_for_markup(vm: Replica) -> None:
    reply: Reply = await vm.send("agent", "/", '{"protoVersion": "\\u001b[31m\\n<b>"}')

    assert (reply.status, reply.kind) == (400, "text/plain")
    assert reply.text.rstrip("\n").isprintable()
