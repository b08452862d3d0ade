"""The leader: builds, compares, sweeps; and what it leaves alone when it no longer leads."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from autoscale_enforcer.background import Background
from autoscale_enforcer.cluster.sweep import READ_ONE_BY_ONE
from autoscale_enforcer.cluster.upkeep import LostLead, recount
from autoscale_enforcer.config.scheduler_config import NodeConfig, SchedulerConfig
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.model.resources import Resources
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import ClusterDouble, never_arrives, pod_json, runs_vm
from tests.support.replica import Replica, until

META = Keys("default").key("meta")
BY_NOW = timedelta(milliseconds=1)


async def state(replica: Replica) -> str:
    return (await replica.ledger.look()).state


@pytest.fixture
async def hasty(start: StartReplica) -> Replica:
    """Its holds lapse at once."""
    replica = await start(hold_lifetime=BY_NOW)
    await replica.lead()
    return replica


async def test_leader_builds_the_ledger_from_the_cluster(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    """Field report 32: serving began before all state was in."""
    cluster.pod("u1", node="n1", cpu="2")
    cluster.pod("u2", cpu="3")
    cluster.pod("u3", node="n1", phase="Succeeded")
    cluster.pod("u4", node="early", cpu="1")
    replica = await start()
    assert await state(replica) == "UNBUILT"

    await replica.lead()

    assert await state(replica) == "SETTLED"
    assert await replica.reserved() == (2000, 1024)
    assert await replica.where("u2") == "pending -"
    assert await replica.where("u3") == "unknown"
    assert (await replica.node("early")).absent == 1
    assert await replica.verify() == []


async def test_leader_takes_off_what_the_config_keeps_back(start: StartReplica) -> None:
    system = NodeConfig(system=Resources(1500, 1 << 30))
    replica = await start(config=SchedulerConfig(nodes=system))

    await replica.lead()

    assert (await replica.node()).capacity == Resources(6500, 31 << 30)


async def test_a_build_that_the_cluster_interrupts_is_begun_anew_at_once(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    """The leader forgot its own token and waited for its own lease to lapse."""
    replica = await start()
    cluster.down = {"list_pods"}
    with pytest.raises(ClusterUnavailable):
        await replica.lead()
    assert await state(replica) == "UNBUILT"
    cluster.down = set()

    await replica.lead()

    assert await state(replica) == "SETTLED"


async def test_one_replica_leads_at_a_time(replica: Replica, start: StartReplica) -> None:
    other = await start(name="r2")

    with pytest.raises(LostLead):
        await other.lead()
    await replica.lead()
    await replica.leader.resign()
    await other.lead()

    with pytest.raises(LostLead):
        await replica.lead()


async def test_a_new_leader_books_what_the_last_one_missed(
    replica: Replica, start: StartReplica, cluster: ClusterDouble
) -> None:
    cluster.node("n1", cpu="9")
    cluster.pod("u1", node="n1", cpu="2")
    await replica.leader.resign()

    await (await start(name="r2")).lead()

    assert (await replica.node()).cap_cpu == 9000
    assert await replica.reserved() == (2000, 1024)


async def test_a_builder_that_was_overtaken_publishes_nothing(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    """Two leaders each loaded facts, and the books ended up with a part of either."""
    slow, fast = await start(name="slow"), await start(name="fast")
    lease = Keys("default").key("lease")
    cluster.before_list = pause = Pause()
    building = asyncio.ensure_future(slow.lead())
    await pause.reached.wait()
    cluster.before_list = Pause(is_open=True)
    await slow.raw.delete(lease)  # it has lapsed

    await fast.lead()
    before = await fast.dump()
    pause.opened.set()

    with pytest.raises(LostLead):
        await building
    assert await fast.dump() == before


class Pause:
    """Holds a list until the test goes on."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        if is_open:
            self.opened.set()

    async def __call__(self) -> None:
        self.reached.set()
        await self.opened.wait()


async def test_suspect_books_are_compared_before_anything_grows(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("vm-1", node="n1", metadata=runs_vm())
    await replica.catch_up()
    await replica.loses_its_primary()
    assert await state(replica) == "SUSPECT"
    assert await replica.permit("vm-1", 4, "1Gi") == (1, "1Gi")
    cluster.pod("u1", node="n1", cpu="2")

    await replica.lead()

    assert await state(replica) == "SETTLED"
    assert await replica.reserved() == (3000, 2048)
    assert await replica.permit("vm-1", 4, "1Gi") == (4, "1Gi")


async def test_suspect_books_stay_so_while_the_cluster_is_away(
    replica: Replica, cluster: ClusterDouble
) -> None:
    await replica.loses_its_primary()
    cluster.down = {"list_nodes"}

    with pytest.raises(ClusterUnavailable):
        await replica.lead()

    assert await state(replica) == "SUSPECT"


async def test_lost_books_are_built_again(replica: Replica, cluster: ClusterDouble) -> None:
    """Field report 28: Redis forgets quietly; no key is not an empty node."""
    cluster.pod("u1", node="n1", cpu="2")
    await replica.catch_up()
    await replica.raw.hdel(Keys("default").key("nodes"), "n1")
    assert await state(replica) == "UNBUILT"
    assert (await replica.filter(pod_json("u2"))).error == "the ledger is not built"

    await replica.lead()

    assert await replica.reserved() == (2000, 1024)


# Sweep


async def test_compare_puts_false_sums_right_with_a_file_too(
    replica: Replica, cluster: ClusterDouble
) -> None:
    cluster.pod("u1", cpu="2", node="n1")
    await replica.catch_up()
    row = await replica.node()
    row.reserved_cpu = 1
    await replica.raw.hset(Keys("default").key("nodes"), "n1", row.encode())

    await replica.catch_up()

    assert await replica.reserved() == (2000, 1024)
    assert replica.leader._upkeep.readings() == {"repaired_rows": 1}


async def test_recount_stops_where_another_replica_leads(
    replica: Replica, cluster: ClusterDouble
) -> None:
    row = await replica.node()
    row.pods = 9
    await replica.raw.hset(Keys("default").key("nodes"), "n1", row.encode())

    with pytest.raises(LostLead):
        await recount(replica.ledger, Leadership("stale"), context={})

    assert (await replica.node()).pods == 9


async def test_sweep_leaves_holds_that_have_not_lapsed(
    replica: Replica, cluster: ClusterDouble
) -> None:
    await replica.reserve(pod_json("u1"))
    cluster.calls.clear()

    await replica.sweep(lapsed=0)

    assert cluster.calls == {}
    assert await replica.where("u1") == "held n1"


@pytest.mark.parametrize("there", ["unbound", "absent", "other", "finished", "deleting"])
async def test_sweep_releases_a_lapsed_hold_that_a_live_read_does_not_find_bound(
    hasty: Replica, cluster: ClusterDouble, there: str
) -> None:
    await hasty.reserve(pod_json("u1"))
    match there:
        case "unbound":
            cluster.pod("u1")
        case "other":
            cluster.pod("u2", name="u1", node="n1")
        case "finished":
            cluster.pod("u1", node="n1", phase="Failed")
        case "deleting":
            cluster.pod("u1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})

    await hasty.sweep()

    assert await hasty.where("u1") == "pending -"
    assert await hasty.reserved() == (0, 0)


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_sweep_confirms_a_lapsed_hold_that_is_bound(
    hasty: Replica, cluster: ClusterDouble, node: str
) -> None:
    """Field report 33: clean-up removed a hold that was still in flight."""
    cluster.node("n2")
    await hasty.catch_up()
    await hasty.reserve(cluster.pod("u1"))
    cluster.pod("u1", node=node)

    await hasty.sweep()

    assert await hasty.where("u1") == f"bound {node}"
    assert await hasty.reserved(node) == (1000, 1024)
    assert await hasty.verify() == []


async def test_sweep_settles_a_lapsed_bind_as_bind_does(
    hasty: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u1")
    cluster.answers_bind(never_arrives)
    cluster.down = {"outdate_bindings"}
    await hasty.bind(pod)
    cluster.down = set()
    cluster.calls.clear()

    await hasty.sweep()

    assert cluster.calls == {"read_pod": 1, "outdate_bindings": 1}
    assert await hasty.where("u1") == "pending -"


async def test_sweep_releases_nothing_while_the_cluster_is_away(
    hasty: Replica, cluster: ClusterDouble, caplog: pytest.LogCaptureFixture
) -> None:
    for uid in ("u1", "u2"):
        await hasty.reserve(pod_json(uid))
    cluster.down = {"read_pod"}

    await hasty.sweep(lapsed=2)

    assert [await hasty.where(uid) for uid in ("u1", "u2")] == ["held n1"] * 2
    assert "default/u1 stays held: the API cannot be reached" in caplog.text


async def test_sweep_leaves_a_hold_that_was_renewed_during_its_read(
    hasty: Replica, cluster: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stamp is the time before the read: what came since is newer."""
    pod = cluster.pod("u1")
    await hasty.reserve(pod)
    read = cluster.read_pod

    async def reserved_meanwhile(name: object) -> object:
        found = await read(name)  # type: ignore[arg-type]
        await hasty.reserve(pod)
        return found

    monkeypatch.setattr(cluster, "read_pod", reserved_meanwhile)

    await hasty.sweep()

    assert await hasty.where("u1") == "held n1"


async def test_sweep_leaves_a_bind_that_was_taken_over_during_its_read(
    hasty: Replica, cluster: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = cluster.pod("u1")
    cluster.answers_bind(never_arrives)
    cluster.down = {"outdate_bindings"}
    await hasty.bind(pod)
    cluster.down = set()
    outdate = cluster.outdate_bindings

    async def bound_meanwhile(fact: object) -> object:
        found = await outdate(fact)  # type: ignore[arg-type]
        assert await hasty.bind(pod) == ""
        return found

    monkeypatch.setattr(cluster, "outdate_bindings", bound_meanwhile)

    await hasty.sweep()

    assert await hasty.where("u1") == "bound n1"


async def test_sweep_reads_one_list_where_many_holds_have_lapsed(
    hasty: Replica, cluster: ClusterDouble
) -> None:
    for i in range(READ_ONE_BY_ONE + 1):
        await hasty.reserve(pod_json(f"u{i}", cpu="10m", mem="1Mi"))
    cluster.pod("u7", node="n1")
    cluster.calls.clear()

    await hasty.sweep(lapsed=READ_ONE_BY_ONE + 1)

    assert cluster.calls == {"read_pods": 1}
    assert (await hasty.node()).pods == 1
    assert await hasty.where("u7") == "bound n1"


async def test_sweep_of_many_leaves_a_pod_that_is_there_and_cannot_be_read(
    hasty: Replica, cluster: ClusterDouble
) -> None:
    """Not among those that could be read, it was taken for gone, and its room was given away."""
    for i in range(READ_ONE_BY_ONE + 1):
        await hasty.reserve(pod_json(f"u{i}", cpu="10m", mem="1Mi"))
    cluster.pod("u7", node="n1", cpu="abc")

    await hasty.sweep(lapsed=READ_ONE_BY_ONE + 1)

    assert (await hasty.node()).pods == 1
    assert await hasty.where("u7") == "held n1"


# In the background


async def test_run_goes_on_through_every_trouble(
    start: StartReplica, cluster: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await start(renew_every=timedelta(milliseconds=1))
    turn, seen = replica.leader._turn, 0
    troubles = [LostLead(), LedgerUnavailable("away"), ClusterUnavailable("away")]

    async def troubled() -> None:
        nonlocal seen
        seen += 1
        if troubles:
            raise troubles.pop()
        await turn()

    monkeypatch.setattr(replica.leader, "_turn", troubled)
    async with Background() as background:
        background.start("leader", replica.leader.run)

        async def is_built() -> bool:
            return await state(replica) == "SETTLED"

        await until(is_built)

    assert (seen > 3, background.failures) == (True, {})


async def test_run_gives_the_lease_up_while_it_does_not_see_the_cluster(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    """Another replica may see it."""
    blind = await start(renew_every=timedelta(milliseconds=1), name="blind")
    other = await start(name="other")
    cluster.down = {"list_pods"}
    async with Background() as background:
        background.start("leader", blind.leader.run)

        async def has_tried() -> bool:
            return cluster.calls["list_pods"] > 2

        await until(has_tried)
    await blind.leader.resign()
    cluster.down = set()

    await other.lead()

    assert other.leader.is_leading
    assert not blind.leader.is_leading


async def test_resign_of_one_that_does_not_lead_changes_nothing(
    replica: Replica, start: StartReplica, orphan: Replica
) -> None:
    other = await start(name="r2")
    with pytest.raises(LostLead):
        await other.lead()
    before = await replica.dump()

    await other.leader.resign()
    await orphan.leader.resign()  # Redis is away: it lapses by itself

    assert await replica.dump() == before
