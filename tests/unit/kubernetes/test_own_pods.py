"""The service's own pods: the label that agents follow is on one of them, and the bell rings."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator

import pytest
from tests.support.fake_api.faults import Refuse
from tests.support.fake_api.samples import Json, pod
from tests.support.fake_api.server import FakeApi
from tests.support.live import metadata

from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.own_pods import (
    ROOM_ANNOTATION,
    AgentsLabel,
    OwnPod,
    RoomBell,
)
from autoscale_enforcer.errors import ClusterUnavailable

SCHEDULER = "autoscale-scheduler"
OWN = OwnPod(namespace="kube-system", name="r1", selector="app=ours")


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[KubeApi]:
    async with KubeApi(api.access()) as client:
        yield client


@pytest.fixture
async def label(client: KubeApi) -> AgentsLabel:
    return AgentsLabel(client, OWN)


def replica(api: FakeApi, name: str, *, ready: bool = True, labelled: bool = False) -> None:
    labels = {"app": "ours"} | ({"name": SCHEDULER} if labelled else {})
    made = pod(name, node="n1", namespace="kube-system", labels=labels)
    made["status"]["conditions"] = _ready(is_so=ready)
    api.store.create("pods", made)


def set_ready(api: FakeApi, name: str, *, is_so: bool) -> None:
    def change(found: Json) -> None:
        found["status"]["conditions"] = _ready(is_so=is_so)

    api.store.update("pods", f"kube-system/{name}", change)


def _ready(*, is_so: bool) -> list[Json]:
    return [{"type": "Ready", "status": str(is_so)}]


def labelled(api: FakeApi) -> list[str]:
    return [
        found["metadata"]["name"]
        for found in api.store.all("pods")
        if found["metadata"]["labels"].get("name") == SCHEDULER
    ]


def ever_labelled(api: FakeApi) -> list[int]:
    """How many had the label after each change of a pod."""
    have: set[str] = set()
    counts = []
    for happened in api.store.tables["pods"].history:
        found = json.loads(happened.after)["metadata"]
        have.discard(found["name"])
        if happened.action != "DELETED" and found["labels"].get("name") == SCHEDULER:
            have.add(found["name"])
        counts.append(len(have))
    return counts


async def test_label_is_put_on_one_ready_pod(api: FakeApi, label: AgentsLabel) -> None:
    replica(api, "r0", ready=False)
    replica(api, "r2")
    replica(api, "r1")
    stranger = pod("other", namespace="kube-system", labels={"app": "theirs"})
    api.store.create("pods", stranger)

    assert await label.look(SCHEDULER) == "r1"

    assert labelled(api) == ["r1"]
    (listed,) = api.requests("list", "pods")
    assert listed.query["labelSelector"] == "app=ours"


async def test_label_stays_where_it_is(api: FakeApi, label: AgentsLabel) -> None:
    replica(api, "r1")
    replica(api, "r2", labelled=True)

    for _ in range(3):
        assert await label.look(SCHEDULER) == "r2"

    assert api.requests("patch", "pods") == []


async def test_label_is_kept_through_one_missed_probe(api: FakeApi, label: AgentsLabel) -> None:
    replica(api, "r1")
    replica(api, "r2", labelled=True)
    for _ in range(3):  # each miss is the first since the pod was ready
        set_ready(api, "r2", is_so=False)
        assert await label.look(SCHEDULER) == "r2"
        set_ready(api, "r2", is_so=True)
        assert await label.look(SCHEDULER) == "r2"

    assert api.requests("patch", "pods") == []


async def test_label_moves_when_its_pod_stays_away_and_is_on_one_pod_at_any_time(
    api: FakeApi, label: AgentsLabel
) -> None:
    replica(api, "r1")
    replica(api, "r2", labelled=True)
    set_ready(api, "r2", is_so=False)
    await label.look(SCHEDULER)

    assert await label.look(SCHEDULER) == "r1"

    assert labelled(api) == ["r1"]
    assert max(ever_labelled(api)) == 1
    off, on = api.requests("patch", "pods")
    assert (off.path[-2:], on.path[-2:]) == ("r2", "r1")
    for patch in (off, on):
        assert patch.headers["Content-Type"] == "application/merge-patch+json"
        assert json.loads(patch.body)["metadata"]["resourceVersion"]


@pytest.mark.parametrize("how", ["deleting", "gone"])
async def test_label_moves_at_once_from_a_pod_that_ends(
    api: FakeApi, label: AgentsLabel, how: str
) -> None:
    replica(api, "r1")
    replica(api, "r2", labelled=True)
    if how == "gone":
        api.store.remove("pods", "kube-system/r2")
    else:
        change = metadata(deletionTimestamp="2026-01-01T00:00:00Z")
        api.store.update("pods", "kube-system/r2", change)

    assert await label.look(SCHEDULER) == "r1"

    assert labelled(api) == ["r1"]
    assert max(ever_labelled(api)) == 1


async def test_label_is_taken_off_where_there_are_several(api: FakeApi, label: AgentsLabel) -> None:
    for name in ("r1", "r2", "r3"):
        replica(api, name, labelled=True)
    set_ready(api, "r1", is_so=False)

    assert await label.look(SCHEDULER) == "r2"

    assert labelled(api) == ["r2"]


async def test_label_is_on_none_where_none_is_ready(api: FakeApi, label: AgentsLabel) -> None:
    replica(api, "r1", ready=False, labelled=True)
    assert await label.look(SCHEDULER) == "r1"

    assert await label.look(SCHEDULER) == ""

    assert labelled(api) == []


async def test_a_leader_that_was_overtaken_changes_no_label(
    api: FakeApi, label: AgentsLabel
) -> None:
    """Its patch carries the version that it saw."""
    replica(api, "r1")
    overtaken = iter([True])

    class Meanwhile:
        async def answer(self, request: object, go_on: object) -> object:  # noqa: ARG002
            if next(overtaken, False):
                change = metadata(annotations={"a": "b"})
                api.store.update("pods", "kube-system/r1", change)
            return await go_on()  # type: ignore[operator]

    api.always("patch", "pods", Meanwhile())  # type: ignore[arg-type]

    with pytest.raises(ClusterUnavailable, match="409"):
        await label.look(SCHEDULER)
    assert labelled(api) == []
    assert await label.look(SCHEDULER) == "r1"


async def test_nothing_is_put_on_where_the_old_one_could_not_be_taken_off(
    api: FakeApi, label: AgentsLabel
) -> None:
    replica(api, "r1")
    replica(api, "r2", ready=False, labelled=True)
    await label.look(SCHEDULER)
    api.next("patch", "pods", Refuse(500))

    with pytest.raises(ClusterUnavailable):
        await label.look(SCHEDULER)
    assert labelled(api) == ["r2"]

    looks = itertools.count()
    while labelled(api) != ["r1"]:
        assert next(looks) < 3
        await label.look(SCHEDULER)


async def test_bell_is_one_write_to_our_own_pod_each_time(api: FakeApi, client: KubeApi) -> None:
    replica(api, "r1")
    bell = RoomBell(client, OWN)
    rung = set()

    for _ in range(2):
        await bell.ring()
        found = api.store.get("pods", "kube-system/r1")["metadata"]
        rung.add((found["annotations"][ROOM_ANNOTATION], found["resourceVersion"]))

    assert [each.path for each in api.seen] == ["/api/v1/namespaces/kube-system/pods/r1"] * 2
    assert len(rung) == 2


async def test_bell_that_did_not_ring_says_so(api: FakeApi, client: KubeApi) -> None:
    with pytest.raises(ClusterUnavailable, match="404"):
        await RoomBell(client, OWN).ring()
