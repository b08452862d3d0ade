"""The service's own pods: the label that agents follow is on one of them, and the bell rings."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator

import pytest
from tests.support.fake_api.faults import Held, Refuse
from tests.support.fake_api.samples import Json, pod
from tests.support.fake_api.server import FakeApi
from tests.support.live import metadata

from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.own_pods import (
    GIVEN_ANNOTATION,
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


def replica(
    api: FakeApi, name: str, *, ready: bool = True, labelled: bool = False, given: bool = True
) -> None:
    labels = {"app": "ours"} | ({"name": SCHEDULER} if labelled else {})
    annotations = {GIVEN_ANNOTATION: SCHEDULER} if labelled and given else {}
    made = pod(name, node="n1", namespace="kube-system", labels=labels, annotations=annotations)
    made["status"]["conditions"] = _ready(is_so=ready)
    api.store.create("pods", made)


def set_ready(api: FakeApi, name: str, *, is_so: bool) -> None:
    def change(found: Json) -> None:
        found["status"]["conditions"] = _ready(is_so=is_so)

    api.store.update("pods", f"kube-system/{name}", change)


def _ready(*, is_so: bool) -> list[Json]:
    return [{"type": "Ready", "status": str(is_so)}]


def labels(api: FakeApi) -> dict[str, str]:
    """The label of each pod that has it."""
    found = [each["metadata"] for each in api.store.all("pods")]
    return {each["name"]: each["labels"]["name"] for each in found if "name" in each["labels"]}


def labelled(api: FakeApi) -> list[str]:
    return [name for name, value in labels(api).items() if value == SCHEDULER]


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


async def test_a_leader_that_was_about_to_give_the_label_is_shut_out_by_the_next(
    api: FakeApi, client: KubeApi
) -> None:
    """The pod that it had chosen had not changed, and two had the label until the next look."""
    replica(api, "r1", ready=False)
    replica(api, "r2")
    held = Held()
    api.next("patch", "pods", held)
    stopped = asyncio.ensure_future(AgentsLabel(client, OWN).look(SCHEDULER))
    await held.arrived.wait()
    set_ready(api, "r1", is_so=True)

    assert await AgentsLabel(client, OWN).look(SCHEDULER) == "r1"
    held.release.set()
    with pytest.raises(ClusterUnavailable, match="409"):
        await stopped

    assert labelled(api) == ["r1"]
    assert max(ever_labelled(api)) == 1


async def test_label_of_another_scheduler_name_goes_before_the_new_one_comes(
    api: FakeApi, label: AgentsLabel
) -> None:
    """After a change of schedulerName another pod kept the old one for ever."""
    replica(api, "r1")
    replica(api, "r2")
    replica(api, "r3", ready=False)
    assert await label.look("before") == "r1"
    set_ready(api, "r1", is_so=False)

    assert await label.look(SCHEDULER) == "r2"
    assert labels(api) == {"r2": SCHEDULER}
    assert await label.look("after") == "r2"

    assert labels(api) == {"r2": "after"}
    written = [
        json.loads(each.body)["metadata"].get("labels") for each in api.requests("patch", "pods")
    ]
    assert [each["name"] for each in written if each] == ["before", None, SCHEDULER, "after"]


async def test_label_name_that_somebody_else_gave_stays(api: FakeApi, label: AgentsLabel) -> None:
    """A ReplicaSet that knows its pods by it would lose this one and make another."""
    replica(api, "r1")
    theirs = {"app": "ours", "name": "enforcer"}
    api.store.create("pods", pod("r2", namespace="kube-system", labels=theirs))

    await label.look(SCHEDULER)

    assert labels(api) == {"r1": SCHEDULER, "r2": "enforcer"}


async def test_label_that_an_older_release_gave_goes_with_its_name_too(
    api: FakeApi, label: AgentsLabel
) -> None:
    replica(api, "r1")
    replica(api, "r2", labelled=True, given=False)

    for _ in range(2):
        assert await label.look(SCHEDULER) == "r2"
    assert len(api.requests("patch", "pods")) == 1
    assert await label.look("after") == "r1"

    assert labels(api) == {"r1": "after"}


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
