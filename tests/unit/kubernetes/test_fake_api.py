"""The API server's stand-in keeps the rules that we build upon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.support.fake_api.patching import merge
from tests.support.fake_api.process import fake_api_process
from tests.support.fake_api.samples import pod
from tests.support.fake_api.server import FakeApi

PODS = "/api/v1/pods"
POD = "/api/v1/namespaces/default/pods/p"
Json = dict[str, Any]


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as server:
        server.store.create("pods", pod("p", uid="u1"))
        yield server


@pytest.fixture
async def http(api: FakeApi) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(api.url) as session:
        yield session


async def ask(http: aiohttp.ClientSession, method: str, path: str, **more: Any) -> tuple[int, Json]:
    async with http.request(method, path, **more) as response:
        return response.status, await response.json(content_type=None)


async def patch(http: aiohttp.ClientSession, path: str, body: Json) -> tuple[int, Json]:
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    return await ask(http, "PATCH", path, data=msgspec.json.encode(body), headers=headers)


def put_on(node: str, found: Json) -> None:
    found["spec"]["nodeName"] = node


async def watched(http: aiohttp.ClientSession, count: int, **query: str) -> list[tuple[str, str]]:
    """Action and name of the first events of a watch from the beginning of time."""
    query = {"watch": "1", "resourceVersion": "1000", **query}
    events = []
    async with http.get(PODS, params=query) as response:
        async for line in response.content:
            event = msgspec.json.decode(line)
            events.append((event["type"], event["object"]["metadata"]["name"]))
            if len(events) == count:
                break
    return events


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"spec": {"nodeName": "n2"}}, 'pod p is already assigned to node "n2"'),
        ({"metadata": {"deletionTimestamp": "now"}}, "pod p is being deleted, cannot be assigned"),
        ({"spec": {"schedulingGates": [{"name": "g"}]}}, "non-empty .spec.schedulingGates"),
    ],
)
async def test_binding_is_refused_as_a_conflict(
    api: FakeApi, http: aiohttp.ClientSession, change: Json, why: str
) -> None:
    api.store.update("pods", "default/p", lambda it: it.update(merge(it, change, strategic=False)))

    status, answer = await ask(http, "POST", f"{POD}/binding", json={"target": {"name": "n1"}})

    assert (status, answer["reason"]) == (409, "Conflict")
    assert why in answer["message"]


async def test_binding_of_no_pod_is_not_found(http: aiohttp.ClientSession) -> None:
    path = "/api/v1/namespaces/default/pods/none/binding"

    status, answer = await ask(http, "POST", path, json={"target": {"name": "n1"}})

    assert (status, answer["message"]) == (404, 'pods "none" not found')


async def test_status_patch_raises_the_version_after_which_an_earlier_binding_is_refused(
    http: aiohttp.ClientSession,
) -> None:
    _, before = await ask(http, "GET", POD)
    condition = {"type": "ours", "status": "True"}
    _, patched = await patch(http, f"{POD}/status", {"status": {"conditions": [condition]}})
    version = before["metadata"]["resourceVersion"]
    late = {"metadata": {"uid": "u1", "resourceVersion": version}, "target": {"name": "n1"}}

    status, answer = await ask(http, "POST", f"{POD}/binding", json=late)

    assert int(patched["metadata"]["resourceVersion"]) > int(version)
    assert status == 409
    assert "Precondition failed: ResourceVersion" in answer["message"]


async def test_patch_that_changes_nothing_leaves_the_version(http: aiohttp.ClientSession) -> None:
    body = {"status": {"conditions": [{"type": "ours", "status": "True"}]}}

    versions = [
        (await patch(http, f"{POD}/status", body))[1]["metadata"]["resourceVersion"] for _ in "ab"
    ]

    assert versions[0] == versions[1]


async def test_status_patch_merges_conditions_and_leaves_the_spec(
    http: aiohttp.ClientSession,
) -> None:
    for name in ("a", "b", "a"):
        await patch(http, f"{POD}/status", {"status": {"conditions": [{"type": name}]}})

    _, found = await patch(http, f"{POD}/status", {"spec": {"nodeName": "n1"}})

    assert [each["type"] for each in found["status"]["conditions"]] == ["a", "b"]
    assert "nodeName" not in found["spec"]


@pytest.mark.parametrize(
    ("metadata", "code"), [({"uid": "u2"}, 422), ({"resourceVersion": "7"}, 409)]
)
async def test_patch_of_another_pod_or_version_is_refused(
    http: aiohttp.ClientSession, metadata: Json, code: int
) -> None:
    status, _ = await patch(http, f"{POD}/status", {"metadata": metadata})

    assert status == code


async def test_deleted_pod_goes_at_once_unless_it_runs(
    api: FakeApi, http: aiohttp.ClientSession
) -> None:
    api.store.create("pods", pod("runs", node="n1"))

    await ask(http, "DELETE", POD)
    _, marked = await ask(http, "DELETE", f"{POD.removesuffix('p')}runs")

    assert "deletionTimestamp" in marked["metadata"]
    assert [each["metadata"]["name"] for each in api.store.all("pods")] == ["runs"]


async def test_pages_are_of_one_version_whatever_happens_between_them(
    api: FakeApi, http: aiohttp.ClientSession
) -> None:
    api.store.create("pods", pod("q"))
    _, first = await ask(http, "GET", PODS, params={"limit": "1"})
    api.store.create("pods", pod("r"))
    token = first["metadata"]["continue"]

    _, second = await ask(http, "GET", PODS, params={"limit": "1", "continue": token})

    assert [each["metadata"]["name"] for each in first["items"] + second["items"]] == ["p", "q"]
    assert second["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}


async def test_watch_with_a_selector_sees_objects_come_into_it_and_leave_it(
    api: FakeApi, http: aiohttp.ClientSession
) -> None:
    watch = asyncio.create_task(watched(http, 3, fieldSelector="spec.nodeName=n1"))
    await api.until("watch", "pods", 1)
    for where in ("n1", "n2", "n1"):
        api.store.update("pods", "default/p", partial(put_on, where))

    assert await watch == [("ADDED", "p"), ("DELETED", "p"), ("ADDED", "p")]


async def test_watch_from_a_forgotten_version_ends_with_an_error_in_the_stream(
    api: FakeApi, http: aiohttp.ClientSession
) -> None:
    api.store.forget("pods")

    async with http.get(PODS, params={"watch": "1", "resourceVersion": "1000"}) as response:
        lines = [msgspec.json.decode(line) async for line in response.content]

    assert response.status == 200
    assert [(each["type"], each["object"]["code"]) for each in lines] == [("ERROR", 410)]


async def test_watch_ends_in_its_time_with_a_bookmark(http: aiohttp.ClientSession) -> None:
    query = {"watch": "1", "resourceVersion": "1001", "timeoutSeconds": "1"}

    async with http.get(PODS, params={**query, "allowWatchBookmarks": "true"}) as response:
        lines = [msgspec.json.decode(line) async for line in response.content]

    (bookmark,) = lines
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["resourceVersion"] == "1001"


async def test_cluster_without_the_crd_knows_no_such_path() -> None:
    path = "/apis/vm.neon.tech/v1/virtualmachines"

    async with (
        FakeApi(with_vms=False) as bare,
        aiohttp.ClientSession(bare.url) as http,
        http.get(path) as response,
    ):
        assert (response.status, response.content_type) == (404, "text/plain")


async def test_server_in_a_process_of_its_own_keeps_changing_pods() -> None:
    with fake_api_process(nodes=2, pods=5, events_per_second=100) as (url, _):
        async with aiohttp.ClientSession(url) as http:
            _, listing = await ask(http, "GET", PODS)
            version = listing["metadata"]["resourceVersion"]
            events = await watched(http, 3, resourceVersion=version)

    assert len(listing["items"]) == 5
    assert {action for action, _ in events} == {"MODIFIED"}
