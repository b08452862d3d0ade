"""What a live cluster is asked and told: Bindings and what became of them, reads, lists."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.support.cluster_double import runs_vm
from tests.support.fake_api.faults import DoneButUnanswered, Lines, Refuse
from tests.support.fake_api.samples import Json, node, pod, virtual_machine
from tests.support.fake_api.server import FakeApi
from tests.support.live import CLUSTER_UID, at, cluster, metadata, phase

from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.source import ABANDONED, KubernetesSource
from autoscale_enforcer.cluster.kubernetes.transport import ApiSettings
from autoscale_enforcer.cluster.source import Bound
from autoscale_enforcer.errors import ClusterUnavailable
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import Resources

WEB = PodName("default/web")
N1 = NodeName("n1")
QUICKLY = ApiSettings(request=timedelta(milliseconds=700))


@pytest.fixture
async def source(api: FakeApi) -> AsyncIterator[KubernetesSource]:
    async with KubeApi(api.access(), QUICKLY) as client:
        yield KubernetesSource(client)


@pytest.fixture
def web(api: FakeApi) -> Json:
    """An unbound pod."""
    return api.store.create("pods", pod("web", uid="u1", cpu="2"))


async def bind(source: KubernetesSource, uid: str = "u1", rv: str = "") -> Bound:
    return await source.bind(PodUid(uid), WEB, node=N1, resource_version=rv)


async def fact_of(source: KubernetesSource, name: PodName = WEB) -> PodFact:
    fact = await source.read_pod(name)
    assert fact is not None
    return fact


def node_of(api: FakeApi, name: str = "web") -> str:
    return str(api.store.get("pods", f"default/{name}")["spec"].get("nodeName", ""))


# Bindings


async def test_bind_posts_one_binding_with_uid_and_version(
    source: KubernetesSource, api: FakeApi, web: Json
) -> None:
    version = web["metadata"]["resourceVersion"]

    assert await bind(source, rv=version) is Bound.CREATED

    (sent,) = api.seen
    assert (sent.verb, sent.path) == ("create", "/api/v1/namespaces/default/pods/web/binding")
    assert json.loads(sent.body) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": "u1",
            "resourceVersion": version,
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    assert node_of(api) == "n1"


@pytest.mark.parametrize("unknown", ["", "-"])
async def test_bind_names_no_version_where_none_is_known(
    source: KubernetesSource, api: FakeApi, web: Json, unknown: str
) -> None:
    assert await bind(source, rv=unknown) is Bound.CREATED

    assert "resourceVersion" not in json.loads(api.seen[0].body)["metadata"]


async def test_bind_of_a_changed_pod_is_told_apart(
    source: KubernetesSource, api: FakeApi, web: Json
) -> None:
    api.store.update("pods", WEB, metadata(labels={"a": "b"}))

    answer = await bind(source, rv=web["metadata"]["resourceVersion"])

    assert (answer, node_of(api)) == (Bound.OTHER_VERSION, "")


@pytest.mark.parametrize(
    "change",
    [at(nodeName="n2"), metadata(deletionTimestamp="2026-01-01T00:00:00Z")],
    ids=["bound already", "being deleted"],
)
async def test_a_conflict_that_is_none_of_versions_is_unclear(
    source: KubernetesSource, api: FakeApi, web: Json, change: Any
) -> None:
    changed = api.store.update("pods", WEB, change)

    assert await bind(source, rv=changed["metadata"]["resourceVersion"]) is Bound.UNCLEAR


@pytest.mark.parametrize("rv", ["", "1"])
async def test_bind_of_another_pod_of_that_name_is_unclear(
    source: KubernetesSource, api: FakeApi, web: Json, rv: str
) -> None:
    """Field report 2: it goes by name and hits the pod that took the name."""
    assert await bind(source, uid="u-old", rv=rv) is Bound.UNCLEAR

    assert node_of(api) == ""


async def test_bind_of_a_pod_that_is_gone_is_unclear(source: KubernetesSource) -> None:
    assert await bind(source) is Bound.UNCLEAR


@pytest.mark.parametrize("code", [400, 403, 429, 500, 503])
async def test_bind_that_is_refused_otherwise_is_unclear(
    source: KubernetesSource, api: FakeApi, web: Json, code: int
) -> None:
    api.next("create", "pods/binding", Refuse(code))

    assert await bind(source) is Bound.UNCLEAR


async def test_bind_without_an_answer_says_so_and_is_never_sent_twice(
    source: KubernetesSource, api: FakeApi, web: Json
) -> None:
    lost = DoneButUnanswered()
    api.next("create", "pods/binding", lost)

    with pytest.raises(ClusterUnavailable):
        await bind(source)
    lost.over.set()

    assert (node_of(api), len(api.requests("create", "pods/binding"))) == ("n1", 1)


# Giving a Binding up


async def test_outdate_bindings_raises_the_version_by_a_condition_of_ours(
    source: KubernetesSource, api: FakeApi, web: Json
) -> None:
    fact = await source.outdate_bindings(await fact_of(source))

    assert fact is not None
    assert (fact.node, fact.requests.cpu) == (None, 2000)
    assert int(fact.resource_version) > int(web["metadata"]["resourceVersion"])
    assert await bind(source, rv=web["metadata"]["resourceVersion"]) is Bound.OTHER_VERSION
    (sent,) = api.requests("patch", "pods/status")
    assert sent.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert json.loads(sent.body)["metadata"] == {"uid": "u1"}
    conditions = api.store.get("pods", WEB)["status"]["conditions"]
    assert [each["type"] for each in conditions] == [ABANDONED]


async def test_outdate_bindings_raises_the_version_each_time(
    source: KubernetesSource, api: FakeApi, web: Json
) -> None:
    """A condition that says the same again would leave the version as it was."""
    api.store.update("pods", WEB, _has_condition)
    before = await fact_of(source)

    again = await source.outdate_bindings(before)

    assert again is not None
    assert again.resource_version != before.resource_version


def _has_condition(found: Json) -> None:
    """As it was patched in an earlier second."""
    found["status"]["conditions"] = [
        {"type": ABANDONED, "status": "True", "lastProbeTime": "2026-01-01T00:00:00Z"}
    ]


async def test_outdate_bindings_tells_of_a_binding_that_came_before(
    source: KubernetesSource, api: FakeApi, web: Json
) -> None:
    fact = await fact_of(source)
    api.store.update("pods", WEB, at(nodeName="n2"))

    found = await source.outdate_bindings(fact)

    assert found is not None
    assert found.node == "n2"


async def test_outdate_bindings_of_a_pod_that_is_gone(
    source: KubernetesSource, api: FakeApi, web: Json
) -> None:
    fact = await fact_of(source)
    api.store.remove("pods", WEB)

    assert await source.outdate_bindings(fact) is None


async def test_outdate_bindings_gives_the_pod_that_has_taken_the_name(
    source: KubernetesSource, api: FakeApi, web: Json
) -> None:
    """A patch with another UID is answered with 422, which kept the hold for ever."""
    fact = await fact_of(source)
    api.store.remove("pods", WEB)
    api.store.create("pods", pod("web", uid="u2"))

    found = await source.outdate_bindings(fact)

    assert found is not None
    assert (found.uid, api.store.get("pods", WEB)["status"].get("conditions")) == ("u2", None)


@pytest.mark.parametrize("code", [403, 409, 422, 500])
async def test_outdate_bindings_that_was_refused_proves_nothing(
    source: KubernetesSource, api: FakeApi, web: Json, code: int
) -> None:
    """A conflict was taken for an answer, and a hold given up while its Binding could land."""
    fact = await fact_of(source)
    api.next("patch", "pods/status", Refuse(code, "Conflict"))

    with pytest.raises(ClusterUnavailable):
        await source.outdate_bindings(fact)


async def test_outdate_bindings_whose_answer_cannot_be_read_proves_nothing(
    source: KubernetesSource, api: FakeApi, web: Json
) -> None:
    fact = await fact_of(source)
    api.next("patch", "pods/status", Lines((b'{"metadata":7}',)))

    with pytest.raises(ClusterUnavailable):
        await source.outdate_bindings(fact)


# Reads


async def test_reads_of_what_there_is_not(source: KubernetesSource) -> None:
    assert await source.read_node(NodeName("n9")) is None
    assert await source.read_pod(WEB) is None
    assert await source.virtual_machine("default", "vm-a") is None
    assert await source.pods_on(N1) == set()
    assert await source.facts_on(N1) == []


async def test_reads_of_what_cannot_be_read_say_so(source: KubernetesSource, api: FakeApi) -> None:
    api.store.create("pods", pod("web", cpu="abc"))
    api.store.create("nodes", node("n2", cpu="abc"))

    with pytest.raises(ClusterUnavailable, match="abc"):
        await source.read_pod(WEB)
    with pytest.raises(ClusterUnavailable, match="abc"):
        await source.read_node(NodeName("n2"))


async def test_read_node(source: KubernetesSource) -> None:
    found = await source.read_node(N1)

    assert found is not None
    assert (found.uid, found.allocatable) == ("uid-n1", Resources(8000, 32 << 30))


async def test_pods_on_leaves_finished_ones_out(source: KubernetesSource, api: FakeApi) -> None:
    for name, where in (("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "")):
        api.store.create("pods", pod(name, node=where, uid=f"u-{name}"))
    api.store.update("pods", "default/b", phase("Succeeded"))

    assert await source.pods_on(N1) == {"u-a"}
    assert dict(api.seen[-1].query)["fieldSelector"] == "spec.nodeName=n1"


async def test_facts_on_leaves_out_what_cannot_be_read(
    source: KubernetesSource, api: FakeApi
) -> None:
    api.store.create("pods", pod("good", node="n1", uid="u1"))
    api.store.create("pods", pod("bad", node="n1", cpu="abc"))

    assert [fact.uid for fact in await source.facts_on(N1)] == ["u1"]


async def test_facts_on_leaves_out_no_pod_whose_vm_could_not_be_asked_for(
    source: KubernetesSource, api: FakeApi
) -> None:
    """The node was booked as if that pod were not on it, and its room given away."""
    api.store.create("virtualmachines", virtual_machine("vm-a"))
    owned = runs_vm(vm="vm-a", annotations={})
    api.store.create("pods", pod("web", node="n1", uid="u1", **owned))
    api.next("get", "virtualmachines", Refuse(500))

    with pytest.raises(ClusterUnavailable):
        await source.facts_on(N1)


async def test_a_vm_object_that_cannot_be_read_is_the_pods_problem(
    source: KubernetesSource, api: FakeApi
) -> None:
    """Its pod could not be read at all: a hold of it could never be settled."""
    owned = runs_vm(vm="vm-a", annotations={})
    api.store.create("pods", pod("web", node="n1", uid="u1", **owned))
    api.store.create("virtualmachines", {"metadata": {"name": "vm-a"}, "spec": 7})

    fact = await fact_of(source)

    assert (fact.node, fact.vm, bool(fact.problem)) == ("n1", None, True)
    assert await source.facts_on(N1) == [fact]


async def test_a_vm_without_annotation_is_read_through_its_object(
    source: KubernetesSource, api: FakeApi
) -> None:
    owned = runs_vm(vm="vm-a", annotations={})
    api.store.create("pods", pod("web", node="n1", uid="u1", **owned))
    before = await fact_of(source)
    api.store.create("virtualmachines", virtual_machine("vm-a", cpus=(1, 3, 4)))

    after = await fact_of(source)

    assert (before.vm, "vm-a is not known" in before.problem) == (None, True)
    assert after.vm is not None
    assert (after.vm.use.cpu, after.vm.from_vm_object, after.problem) == (3000, True, "")
    assert [fact.vm for fact in await source.facts_on(N1)] == [after.vm]
    assert [fact.vm for fact in await source.list_pods()] == [after.vm]


async def test_a_vm_with_its_annotation_costs_one_read(
    source: KubernetesSource, api: FakeApi
) -> None:
    api.store.create("pods", pod("web", node="n1", uid="u1", **runs_vm(use="2")))

    fact = await fact_of(source)

    assert fact.vm is not None
    assert (fact.vm.use.cpu, [each.resource for each in api.seen]) == (2000, ["pods"])


async def test_lists_go_past_what_cannot_be_read(source: KubernetesSource, api: FakeApi) -> None:
    api.store.create("pods", pod("good", uid="u1"))
    api.store.create("pods", pod("bad", cpu="abc"))
    api.store.create("nodes", node("n2", cpu="abc"))

    assert [fact.uid for fact in await source.list_pods()] == ["u1"]
    assert [fact.name for fact in await source.list_nodes()] == ["n1"]


async def test_pods_by_name_tell_what_is_gone_from_what_cannot_be_read(
    source: KubernetesSource, api: FakeApi
) -> None:
    """A pod that could not be read was missing from the list, as one that is gone."""
    api.store.create("pods", pod("good", uid="u1", namespace="default"))
    api.store.create("pods", pod("bad", uid="u2", namespace="default", cpu="abc"))
    api.store.create("pods", pod("worse", uid="u3", namespace="default", labels=["no map"]))
    names = {PodName(f"default/{name}") for name in ("good", "bad", "worse", "gone")}

    found = await source.read_pods(names)

    assert {name: fact and fact.uid for name, fact in found.items()} == {
        "default/good": "u1",
        "default/gone": None,
    }
    assert len(api.requests("list", "pods")) == 1


async def test_a_pod_without_a_name_that_can_be_read_may_be_any_that_is_missing(
    source: KubernetesSource, api: FakeApi
) -> None:
    api.store.create("pods", pod("good", uid="u1", namespace="default"))
    nameless = b'{"metadata":{"name":["web"]},"spec":{}}'
    api.next(
        "list",
        "pods",
        Lines((b'{"metadata":{"resourceVersion":"9"},"items":[' + nameless + b"]}",)),
    )

    assert await source.read_pods({PodName("default/web")}) == {}


async def test_a_victim_that_cannot_be_read_is_still_there(
    source: KubernetesSource, api: FakeApi
) -> None:
    api.store.create("pods", pod("bad", node="n1", uid="u2", labels=["no map"]))

    assert await source.pods_on(N1) == {"u2"}


async def test_a_cluster_without_the_crds() -> None:
    async with FakeApi(with_vms=False) as api, KubeApi(api.access()) as client:
        source = KubernetesSource(client)
        cluster(api).store.create("pods", pod("web", uid="u1", **runs_vm(annotations={})))

        (listed,) = await source.list_pods()
        fact = await source.read_pod(WEB)

        assert (listed, await source.virtual_machine("default", "vm-a")) == (fact, None)
        assert "vm-a is not known" in listed.problem


# Which cluster


async def test_a_cluster_is_known_by_the_uid_of_kube_system(
    source: KubernetesSource, api: FakeApi
) -> None:
    assert await source.cluster_uid() == CLUSTER_UID

    api.store.remove("namespaces", "kube-system")
    with pytest.raises(ClusterUnavailable, match="kube-system"):
        await source.cluster_uid()


async def test_everything_says_so_where_the_api_is_away(
    source: KubernetesSource, api: FakeApi, web: Json
) -> None:
    fact = await fact_of(source)
    await api.__aexit__()

    for asked in (
        source.cluster_uid(),
        source.read_node(N1),
        source.read_pod(WEB),
        source.pods_on(N1),
        source.facts_on(N1),
        source.virtual_machine("default", "vm-a"),
        source.list_nodes(),
        source.list_pods(),
        source.outdate_bindings(fact),
        bind(source),
    ):
        with pytest.raises(ClusterUnavailable):
            await asked
