from __future__ import annotations

import asyncio
import gc
import itertools
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.support.fake_api.faults import (
    Cut,
    DoneButUnanswered,
    Fault,
    Foreign,
    Lines,
    Refuse,
    Silence,
)
from tests.support.fake_api.samples import node, pod, virtual_machine
from tests.support.fake_api.server import FakeApi

from autoscale_enforcer.cluster.kubernetes import paths
from autoscale_enforcer.cluster.kubernetes.access import Access, NoCredentials
from autoscale_enforcer.cluster.kubernetes.answers import (
    BadObject,
    BareObject,
    Bookmark,
    Changed,
    read_items,
)
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.failures import (
    ApiRefusal,
    Expired,
    Forbidden,
    NotServed,
    read_status,
    refusal,
)
from autoscale_enforcer.cluster.kubernetes.lines import LineSplitter
from autoscale_enforcer.cluster.kubernetes.transport import ApiSettings
from autoscale_enforcer.errors import ClusterUnavailable, ObjectError
from autoscale_enforcer.model.ids import NodeName, PodName
from autoscale_enforcer.objects.shapes import NodeObject, PodObject, VmObject
from autoscale_enforcer.turns import FullCollections

POD = PodName("default/p")
BRIEF = ApiSettings(
    connect=timedelta(seconds=0.2), request=timedelta(seconds=0.2), page=timedelta(seconds=0.2)
)
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as server:
        yield server


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[KubeApi]:
    async with KubeApi(api.access()) as client:
        yield client


@pytest.fixture
async def hasty(api: FakeApi) -> AsyncIterator[KubeApi]:
    """A client that waits for a moment only."""
    async with KubeApi(api.access(), BRIEF) as client:
        yield client


async def test_get_gives_the_fields_that_are_used(api: FakeApi, client: KubeApi) -> None:
    api.store.create("pods", pod("p", node="n1", uid="u1"))
    api.store.create("nodes", node("n1"))
    api.store.create("virtualmachines", virtual_machine("vm"))

    found = await client.get(paths.pod_path(POD), PodObject)
    its_node = await client.get(paths.node_path(NodeName("n1")), NodeObject)
    vm = await client.get(paths.virtual_machine_path("default", "vm"), VmObject)

    assert found
    assert found.spec
    assert found.metadata
    assert (found.metadata.uid, found.spec.node_name) == ("u1", "n1")
    assert its_node
    assert its_node.status
    assert its_node.status.allocatable
    assert its_node.status.allocatable.cpu == "8"
    assert vm
    assert vm.spec
    assert vm.spec.guest
    assert api.seen[0].headers["User-Agent"] == "AutoscaleEnforcer"


async def test_get_of_what_is_not_there_gives_none(client: KubeApi) -> None:
    assert await client.get(paths.pod_path(POD), PodObject) is None


async def test_get_of_a_kind_that_is_not_installed_is_told_from_what_is_not_there() -> None:
    async with FakeApi(with_vms=False) as bare, KubeApi(bare.access()) as client:
        with pytest.raises(NotServed):
            await client.get(paths.virtual_machine_path("default", "vm"), VmObject)


@pytest.mark.parametrize("body", ["<html>404 not found</html>", "{}", '{"reason":"nobody home"}'])
async def test_get_believes_no_404_but_the_api_servers_own(
    api: FakeApi, client: KubeApi, body: str
) -> None:
    """A page of a proxy in between was taken for the proof that a pod is gone."""
    api.store.create("pods", pod("p"))
    api.next("get", "pods", Foreign(404, body))

    with pytest.raises(ClusterUnavailable):
        await client.get(paths.pod_path(POD), PodObject)


@pytest.mark.parametrize("body", ["<html>welcome</html>", "{}", '{"metadata":{"name":7}}'])
async def test_get_that_is_answered_with_no_object_makes_the_cluster_unavailable(
    api: FakeApi, client: KubeApi, body: str
) -> None:
    api.next("get", "pods", Foreign(200, body))

    with pytest.raises(ClusterUnavailable, match="get pods: the answer is no object"):
        await client.get(paths.pod_path(POD), BareObject)


async def test_get_of_an_object_that_cannot_be_read_says_where(
    api: FakeApi, client: KubeApi
) -> None:
    api.store.create("pods", {"metadata": {"name": "p"}, "spec": {"nodeName": 7}})

    with pytest.raises(ObjectError, match=r"spec\.nodeName"):
        await client.get(paths.pod_path(POD), PodObject)


async def test_names_are_quoted_in_paths(api: FakeApi, client: KubeApi) -> None:
    await client.get(paths.node_path(NodeName("../pods?watch=1")), NodeObject)

    assert [each.resource for each in api.seen] == ["nodes"]


async def test_list_gives_good_objects_and_bad_ones_by_themselves(
    api: FakeApi, client: KubeApi
) -> None:
    api.store.create("pods", pod("good"))
    api.store.create("pods", {"metadata": {"name": "bad", "uid": "u"}, "spec": {"containers": 1}})
    api.store.create("pods", {"metadata": {"name": "worse", "labels": 5}, "spec": {}})

    listing = await client.list_all(paths.PODS, PodObject)

    assert [each.metadata and each.metadata.name for each in listing.items] == ["good"]
    told = [(each.name, each.uid, each.error.path) for each in listing.bad]
    assert told[0] == ("bad", "u", "spec.containers")
    assert told[1][0] == "worse"
    assert listing.resource_version == "1003"


async def test_list_can_be_of_one_node_or_of_one_name(api: FakeApi, client: KubeApi) -> None:
    for name, where in (("a", "n1"), ("b", "n2"), ("c", "")):
        api.store.create("pods", pod(name, node=where))
    api.store.create("configmaps", {"metadata": {"name": "mine"}, "data": {}})
    api.store.create("configmaps", {"metadata": {"name": "other"}, "data": {}})

    on_node = await client.list_all(paths.pods_on_path(NodeName("n1")), PodObject)
    mine = await client.list_all(paths.one_config_map_path("default", "mine"), BareObject)

    assert [each.metadata and each.metadata.name for each in on_node.items] == ["a"]
    assert [each.metadata and each.metadata.name for each in mine.items] == ["mine"]


async def test_list_of_a_kind_that_is_not_installed_is_told_from_an_empty_one() -> None:
    async with FakeApi(with_vms=False) as bare, KubeApi(bare.access()) as client:
        with pytest.raises(NotServed):
            await client.list_all(paths.VIRTUAL_MACHINES, VmObject)


@pytest.mark.parametrize("body", ["<html>welcome</html>", "{}", '{"items":[]}'])
async def test_list_that_is_none_makes_the_cluster_unavailable(
    api: FakeApi, client: KubeApi, body: str
) -> None:
    """Any JSON object was a list of nothing: books were built without the cluster's pods."""
    api.next("list", "pods", Foreign(200, body))

    with pytest.raises(ClusterUnavailable, match="list pods: the answer is no list"):
        await client.list_all(paths.PODS, PodObject)


async def test_watch_gives_changes_bookmarks_and_bad_objects(api: FakeApi, client: KubeApi) -> None:
    lines = [
        pod("p", resourceVersion="7"),
        {"metadata": {"name": "bad", "resourceVersion": "8"}, "spec": []},
        {"metadata": {"resourceVersion": "9"}},
    ]
    actions = ["MODIFIED", "ADDED", "BOOKMARK"]
    events = [{"type": a, "object": o} for a, o in zip(actions, lines, strict=True)]
    api.next("watch", "pods", Lines(tuple(msgspec.json.encode(event) for event in events)))

    got = [
        event
        async for event in client.watch(paths.PODS, PodObject, resource_version="6", lasts=MINUTE)
    ]

    changed, bad, bookmark = got
    assert isinstance(changed, Changed)
    assert (changed.action, changed.resource_version) == ("MODIFIED", "7")
    assert isinstance(bad, BadObject)
    assert (bad.name, bad.action, bad.resource_version) == ("bad", "ADDED", "8")
    assert bookmark == Bookmark("9")


async def test_watch_that_is_left_gives_its_connection_back(api: FakeApi, client: KubeApi) -> None:
    api.store.create("pods", pod("p"))
    events = client.watch(paths.PODS, PodObject, resource_version="1000", lasts=MINUTE)
    async with aclosing(events):
        await anext(events)

    api.end_watches()
    found = await client.get(paths.pod_path(POD), PodObject)

    assert found is not None


async def test_connection_whose_other_end_is_gone_is_found_out_by_the_kernel(
    api: FakeApi, client: KubeApi
) -> None:
    """FIELD-REPORTS 23. A watch sends nothing, so nothing else would tell within half a minute."""
    await client.get(paths.pod_path(POD), PodObject)
    session = client._transport._session
    assert session is not None
    assert session.connector is not None
    ((connection, _),) = next(iter(session.connector._conns.values()))
    assert connection.transport is not None
    ours = connection.transport.get_extra_info("socket")

    probing = ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    idle, interval, count = (
        ours.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )

    assert probing == 1
    assert idle + interval * count <= 30


def binding(uid: str = "u1", version: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "default", "uid": uid, "resourceVersion": version},
        "target": {"kind": "Node", "name": "n1"},
    }


async def test_post_tells_what_was_answered(api: FakeApi, client: KubeApi) -> None:
    api.store.create("pods", pod("p", uid="u1"))
    path = paths.binding_path(POD)

    other_uid = await client.post(path, binding(uid="u2"))
    other_version = await client.post(path, binding(version="900"))
    done = await client.post(path, binding(version="1001"))
    again = await client.post(path, binding())

    assert (other_uid.status, other_uid.reason) == (409, "Conflict")
    assert "UID in precondition: u2, UID in object meta: u1" in other_uid.message
    assert "ResourceVersion in precondition: 900" in other_version.message
    assert (done.ok, done.status) == (True, 201)
    assert again.message.endswith('pod p is already assigned to node "n1"')


async def test_patch_answers_with_the_object(api: FakeApi, client: KubeApi) -> None:
    api.store.create("pods", pod("p", uid="u1"))
    ours = {"type": "ours", "status": "True"}
    body = {"metadata": {"uid": "u1"}, "status": {"conditions": [ours]}}

    reply = await client.patch(paths.pod_status_path(POD), body, paths.STRATEGIC_MERGE_PATCH)

    assert reply.ok
    assert msgspec.json.decode(reply.body)["metadata"]["resourceVersion"] == "1002"


async def test_write_without_a_permission_names_it(api: FakeApi, client: KubeApi) -> None:
    api.forbidden.add(("create", "pods/binding"))

    reply = await client.post(paths.binding_path(POD), binding())

    assert reply.status == 403
    assert reply.message.startswith("missing permission to create pods/binding: pods/binding is")


async def test_write_whose_answer_never_comes_may_have_been_done(
    api: FakeApi, hasty: KubeApi
) -> None:
    api.store.create("pods", pod("p", uid="u1"))
    fault = DoneButUnanswered()
    api.next("create", "pods/binding", fault)

    with pytest.raises(ClusterUnavailable, match="create pods/binding: no answer in time"):
        await hasty.post(paths.binding_path(POD), binding())

    await fault.done.wait()
    assert api.store.get("pods", "default/p")["spec"]["nodeName"] == "n1"
    assert len(api.seen) == 1


@pytest.mark.parametrize("verb", ["get", "list", "watch", "create"])
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda: Silence(with_head=False), id="no answer"),
        pytest.param(lambda: Cut(b'{"'), id="cut"),
    ],
)
async def test_no_error_of_the_http_client_leaves_it(
    api: FakeApi, hasty: KubeApi, verb: str, fault: Callable[[], Fault]
) -> None:
    api.next(verb, "pods", fault())

    with pytest.raises(ClusterUnavailable, match=f"^{verb} pods: "):
        await ask(hasty, verb)


@pytest.mark.parametrize("verb", ["get", "list", "watch", "create"])
async def test_server_that_is_not_there_makes_the_cluster_unavailable(verb: str) -> None:
    access = Access(server="http://127.0.0.1:1", credentials=NoCredentials())
    async with KubeApi(access, BRIEF) as client:
        with pytest.raises(ClusterUnavailable, match=f"^{verb} pods: Cannot connect"):
            await ask(client, verb)


async def test_answer_that_trickles_is_given_up_in_time(api: FakeApi, hasty: KubeApi) -> None:
    api.next("get", "pods", Silence())
    began = time.monotonic()

    with pytest.raises(ClusterUnavailable, match="no answer in time"):
        await hasty.get(paths.pod_path(POD), PodObject)

    assert time.monotonic() - began < 30


async def ask(client: KubeApi, verb: str) -> None:
    if verb == "get":
        await client.get(paths.pod_path(POD), PodObject)
    elif verb == "list":
        await client.list_all(paths.PODS, PodObject)
    elif verb == "create":
        await client.post("/api/v1/namespaces/default/pods", pod("p"))
    else:
        async for _ in client.watch(paths.PODS, PodObject, resource_version="1", lasts=MINUTE):
            pass


async def test_client_that_was_not_entered_says_so() -> None:
    access = Access(server="http://127.0.0.1:1", credentials=NoCredentials())

    with pytest.raises(ClusterUnavailable, match="not open"):
        await KubeApi(access).get(paths.pod_path(POD), PodObject)


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (Refuse(410, "Expired", "too old"), Expired, "list pods: 410 Expired: too old"),
        (Refuse(403, "Forbidden", "no"), Forbidden, "missing permission to list pods: no"),
        (Refuse(404, "NotFound"), NotServed, "list pods: 404 NotFound: scripted"),
        (Refuse(500, "InternalError"), ApiRefusal, "list pods: 500 InternalError: scripted"),
        (Refuse(302, "Found"), ApiRefusal, "list pods: 302 Found: scripted"),
    ],
)
async def test_refusal_says_what_was_asked_and_why_not(
    api: FakeApi, client: KubeApi, fault: Fault, kind: type[ApiRefusal], words: str
) -> None:
    api.next("list", "pods", fault)

    with pytest.raises(ApiRefusal) as caught:
        await client.list_all(paths.PODS, PodObject)

    assert type(caught.value) is kind
    assert str(caught.value) == words


async def test_missing_right_is_named_in_the_words_of_rbac(api: FakeApi, client: KubeApi) -> None:
    api.forbidden.add(("watch", "pods"))

    with pytest.raises(
        Forbidden, match="missing permission to watch pods: pods is forbidden: User"
    ):
        await ask(client, "watch")


@pytest.mark.parametrize(
    ("header", "seconds"), [("5", 5), ("100000", 300), ("soon", 0), ("-1", 0), ("", 0)]
)
def test_retry_after_is_taken_within_reason(header: str, seconds: int) -> None:
    found = refusal("list pods", 429, read_status(b"no JSON"), {"Retry-After": header})

    assert found.retry_after == seconds


@pytest.mark.parametrize(
    ("verb", "path", "words"),
    [
        ("list", paths.PODS, "list pods"),
        ("watch", paths.one_config_map_path("a", "b"), "watch configmaps"),
        ("get", paths.pod_path(POD), "get pods"),
        ("get", paths.node_path(NodeName("n")), "get nodes"),
        ("get", paths.namespace_path("kube-system"), "get namespaces"),
        ("create", paths.binding_path(POD), "create pods/binding"),
        ("patch", paths.pod_status_path(POD), "patch pods/status"),
        ("list", paths.VIRTUAL_MACHINES, "list virtualmachines"),
        ("get", paths.virtual_machine_path("a", "b"), "get virtualmachines"),
    ],
)
def test_what_was_asked_is_said_as_a_right(verb: str, path: str, words: str) -> None:
    assert paths.asked_for(verb, path) == words


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_are_whole_wherever_the_chunks_end(size: int) -> None:
    text = b"first\n\nsecond line\n\r\nthird\nrest"
    splitter = LineSplitter()

    lines = [
        line
        for start in range(0, len(text), size)
        for line in splitter.feed(text[start : start + size])
    ]

    assert lines == [b"first", b"second line", b"third"]
    assert splitter.is_mid_line


async def test_other_tasks_run_while_a_long_list_is_decoded() -> None:
    items = [msgspec.Raw(msgspec.json.encode(pod(f"p{number}"))) for number in range(30_000)]
    turns: list[float] = []

    async def take_turns() -> None:
        while True:
            turns.append(time.thread_time())
            await asyncio.sleep(0)

    others = asyncio.create_task(take_turns())
    with FullCollections.held_off():
        page = await read_items(items, PodObject)
    others.cancel()

    assert len(page.items) == len(items)
    # Of this thread's own time: another process may hold the processor for longer.
    assert max(end - begin for begin, end in itertools.pairwise(turns)) < 0.05


def test_full_collections_come_back_when_the_last_list_is_done() -> None:
    usual = gc.get_threshold()

    with FullCollections.held_off():
        with FullCollections.held_off():
            pass
        inside = gc.get_threshold()

    assert inside[:2] == usual[:2]
    assert inside[2] > 1_000_000
    assert gc.get_threshold() == usual
