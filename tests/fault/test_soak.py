"""Names that never come back leave nothing behind: not in the ledger, not in a replica."""

from __future__ import annotations

from typing import Any

import pytest

from autoscale_enforcer.cluster.leader import REMEMBERED_FOR
from autoscale_enforcer.ledger.keys import BOOKS, Keys
from autoscale_enforcer.model.ids import NodeName
from tests.support.cluster_double import runs_vm
from tests.support.fake_api.samples import node, pod
from tests.support.fake_api.server import FakeApi
from tests.support.live import Clock, Live, StartLive

KEYS = Keys("default")
ELEVEN_MINUTES_MS = 11 * 60 * 1000
BATCH = 500


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(2 * BATCH, id="short"),
        pytest.param(10_000, id="whole", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
async def test_ever_new_nodes_and_pods_leave_as_many_keys_and_fields_as_there_were(
    start_live: StartLive, api: FakeApi, names: int
) -> None:
    clock = Clock()
    live = await start_live(clock=clock)
    other = await start_live(name="r2")
    api.store.create("pods", pod("stays", node="n1", uid="u1", cpu="1"))
    await live.lead()
    before = await sizes(live)

    for start in range(0, names, BATCH):
        await come_and_go(live, api, range(start, start + BATCH))
        await other.front.ledger.mirror.refresh()
        clock.now += REMEMBERED_FOR / 4
        await live.lead()
    assert (await sizes(live))["changes"] < names + 2  # it is trimmed on the way, too
    await grow_old(live)
    for _ in range(2):
        clock.now += REMEMBERED_FOR + 1
        await live.lead()

    assert await sizes(live) == before
    assert await live.verify() == []
    for each in (live, other):
        await each.front.ledger.mirror.refresh()
        assert list(each.front.ledger.mirror.nodes) == [NodeName("n1")]
    assert live.reconciler.world == type(live.reconciler.world)()
    assert (live.reconciler.pending, len(live.reconciler.pump)) == (set(), 0)
    assert len(live.leader._versions) < 10


async def come_and_go(live: Live, api: FakeApi, numbers: range) -> None:
    """So many nodes, each with a plain pod and a VM; in some the node goes before its pods."""
    for number in numbers:
        name = f"node-{number}"
        api.store.create("nodes", node(name))
        api.store.create("pods", pod(f"p-{number}", node=name))
        api.store.create("pods", pod(f"vm-{number}", node=name, **runs_vm(vm=f"vm-{number}")))
    await live.until(lambda: count(live, "pods"), 2 * len(numbers) + 1)
    for number in numbers:
        if number % 2:
            api.store.remove("nodes", f"node-{number}")
        api.store.remove("pods", f"default/p-{number}")
        api.store.remove("pods", f"default/vm-{number}")
        if not number % 2:
            api.store.remove("nodes", f"node-{number}")
    await live.until(lambda: count(live, "nodes"), 1)


async def count(live: Live, key: str) -> Any:
    return await live.front.raw.hlen(KEYS.key(key))


async def grow_old(live: Live) -> None:
    """All deletions were booked eleven minutes ago."""
    key = KEYS.key("gone")
    gone = await live.front.raw.zrange(key, 0, -1, withscores=True)
    if gone:
        await live.front.raw.zadd(key, {uid: at - ELEVEN_MINUTES_MS for uid, at in gone})


async def sizes(live: Live) -> dict[str, int]:
    """Fields of each key but the journal, whose length is bounded; and how many keys there are."""
    raw, found = live.front.raw, {"keys": len(await live.front.raw.keys("*"))}
    for name in set(BOOKS) - {"journal"}:
        is_set = await raw.type(KEYS.key(name)) == b"zset"
        found[name] = await (raw.zcard if is_set else raw.hlen)(KEYS.key(name))
    return found
