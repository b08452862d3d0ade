"""What kubectl prints, good and bad, and the recorded cluster to the unit."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import NO_OVERCOMMIT, Resources
from autoscale_enforcer.objects.decode import convert
from autoscale_enforcer.objects.listing import ClusterListing, read_cluster
from autoscale_enforcer.objects.pods import read_pod
from autoscale_enforcer.objects.shapes import PodObject
from tests.unit.objects.make import (
    DATA,
    container,
    json_lines,
    node_json,
    pod_json,
    vm_json,
    vm_metadata,
)

GOOD = [node_json(), pod_json(container("1")), vm_json()]


def listed(*items: Any, kind: str = "List", api: str = "v1") -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"resourceVersion": ""}, "items": items}


def read(document: object) -> ClusterListing:
    return read_cluster(json.dumps(document).encode())


def names(listing: ClusterListing) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    return [n.name for n in listing.nodes], [p.name for p in listing.pods], list(listing.vms)


EVERYTHING = (["n1"], ["web-0"], [("default", "vm-a")])


def charges(listing: ClusterListing) -> dict[str, dict[str, int]]:
    """What each node holds: the charges of its bound pods and their number."""
    held: dict[str, Resources] = {}
    pods = Counter[str]()
    for pod in listing.pods:
        if pod.node and not pod.finished:
            overcommit = pod.vm.overcommit if pod.vm else NO_OVERCOMMIT
            held[pod.node] = held.get(pod.node, Resources()) + overcommit.charge(pod.wanted)
            pods[pod.node] += 1
    return {
        name: {"cpuMilli": sums.cpu, "memoryBytes": sums.mem, "pods": pods[name]}
        for name, sums in held.items()
    }


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_recorded_cluster_adds_up_to_the_unit(form: str) -> None:
    """`expected.json` comes from a program that shares no code with ours."""
    traffic = DATA / "traffic"
    text = (traffic / "cluster.json").read_bytes()
    if form == "yaml":
        text = yaml.dump(json.loads(text), Dumper=yaml.CSafeDumper).encode()

    listing = read_cluster(text)

    assert (len(listing.nodes), len(listing.pods), len(listing.vms)) == (12, 154, 52)
    assert listing.bad == []
    expected = json.loads((traffic / "expected.json").read_text())["names.jsonl"]
    assert charges(listing) == expected


@pytest.mark.parametrize("recording", ["names.jsonl", "nodes.jsonl"])
def test_the_recorded_requests_add_up_to_the_unit(recording: str) -> None:
    """The pods as kube-scheduler sent them, each on the node that it then bound it to."""
    listing, sent = ClusterListing(), dict[str, PodFact]()
    for call in json_lines(DATA / "traffic" / recording):
        request = call["request"]
        if call["verb"] == "filter":
            pod = read_pod(convert(request["Pod"], PodObject))
            sent[pod.uid] = pod
        elif call["verb"] == "bind":
            pod = sent[request["PodUID"]]
            listing.pods.append(replace(pod, node=NodeName(request["Node"])))

    expected = json.loads((DATA / "traffic" / "expected.json").read_text())[recording]
    assert charges(listing) == expected


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(listed(*GOOD), id="list"),
        pytest.param(listed(*reversed(GOOD)), id="any order"),
        pytest.param(listed(listed(GOOD[0], kind="NodeList"), listed(*GOOD[1:])), id="nested"),
        pytest.param(listed(*GOOD, listed(), {"kind": "List", "items": None}), id="empty lists"),
        pytest.param(
            listed(*GOOD, {"kind": "Secret", "apiVersion": "v1"}), id="kinds that we do not read"
        ),
        pytest.param(
            listed(
                *GOOD,
                {**vm_json(name="kv"), "apiVersion": "kubevirt.io/v1"},
                {**pod_json(), "apiVersion": "example.org/v1"},
                {**node_json("n2"), "apiVersion": "example.org/v1"},
            ),
            id="kinds of the same name in other groups",
        ),
    ],
)
def test_read_cluster_finds_nodes_pods_and_vms(document: object) -> None:
    for text in (json.dumps(document).encode(), yaml.safe_dump(document).encode()):
        listing = read_cluster(text)

        assert names(listing) == EVERYTHING
        assert listing.bad == []


def test_read_cluster_takes_yaml_of_several_documents() -> None:
    documents = [listed(GOOD[0]), None, GOOD[1], GOOD[2]]
    text = b"\xef\xbb\xbf---\n" + yaml.safe_dump_all(documents).encode()

    assert names(read_cluster(text)) == EVERYTHING


def test_read_cluster_counts_on_through_the_documents() -> None:
    text = yaml.safe_dump_all([listed(*GOOD), pod_json(container("abc"))]).encode()

    assert [bad.position for bad in read_cluster(text).bad] == [4]


def test_read_cluster_takes_json_with_a_byte_order_mark() -> None:
    """What a Windows shell puts before redirected output."""
    text = b"\xef\xbb\xbf" + json.dumps(listed(*GOOD)).encode()

    assert names(read_cluster(text)) == EVERYTHING


def test_read_cluster_takes_one_object() -> None:
    assert names(read(GOOD[0])) == (["n1"], [], [])


def test_read_cluster_takes_the_apis_own_lists() -> None:
    """Their items carry neither kind nor apiVersion."""
    bare = {k: v for k, v in GOOD[1].items() if k not in {"kind", "apiVersion"}}

    assert names(read(listed(bare, kind="PodList"))) == ([], ["web-0"], [])


def test_vm_pods_without_annotation_take_the_vm_object_wherever_it_stands() -> None:
    runner = pod_json(container("1"), metadata=vm_metadata({}))

    for items in ([runner, vm_json()], [vm_json(), runner]):
        (pod,) = read(listed(*items)).pods
        assert pod.vm is not None
        assert pod.vm.from_vm_object
        assert pod.vm.use.cpu == 1000


def test_a_vm_of_another_namespace_is_not_the_pods() -> None:
    runner = pod_json(metadata=vm_metadata({}))

    (pod,) = read(listed(runner, vm_json(namespace="other"))).pods

    assert pod.problem.endswith("VirtualMachine vm-a is not known")


@pytest.mark.parametrize(
    ("item", "where"),
    [
        (
            pod_json(container("abc")),
            "Pod default/web-0: spec.containers[0].resources.requests.cpu",
        ),
        ({**pod_json(), "spec": {"containers": "x"}}, "Pod default/web-0: spec.containers"),
        ({**pod_json(), "metadata": "x"}, "Pod number 1: metadata"),
        (node_json("bad", capacity={"cpu": "4"}), "Node bad: status.allocatable"),
        ({**vm_json(), "spec": []}, "VirtualMachine default/vm-a: spec"),
        ({"apiVersion": "v1"}, "object number 1: items[0].kind"),
        ({"kind": 5}, "object number 1: items[0].kind"),
        ("Pod", "object number 1: items[0]"),
        (None, "object number 1: items[0]"),
        ({"kind": "PodList", "items": {}}, "object number 1: items[0].items"),
    ],
)
def test_a_bad_object_is_collected_and_spoils_no_other(item: Any, where: str) -> None:
    """Field report 25: one bad object stopped everything after it."""
    good = [pod_json(container("1"), metadata={"name": f"good-{i}"}) for i in range(10)]
    document = listed(item, *good)

    for text in (json.dumps(document).encode(), yaml.safe_dump(document).encode()):
        listing = read_cluster(text)

        assert len(listing.pods) == 10
        (bad,) = listing.bad
        assert bad.describe().startswith(where + ": ")
        assert bad.position == 1


def test_a_vm_pod_with_broken_json_stays_in_the_listing() -> None:
    runner = pod_json(container("1"), metadata=vm_metadata({"vm.neon.tech/resources": "{"}))

    listing = read(listed(runner, *GOOD))

    assert listing.bad == []
    assert [pod.is_vm for pod in listing.pods] == [True, False]
    assert listing.pods[0].problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is empty"),
        (b"---\n", "is empty"),
        (b'{"kind": "List", "items": [', "truncated"),
        (b"{}", "expected what kubectl"),
        (b"[]", "expected object, got array"),
        (b"hello", "expected object, got str"),
        (b"a: [", "neither JSON nor YAML"),
        (b"a: 2026-13-45", "neither JSON nor YAML"),
        (b"\x00\x01", "neither JSON nor YAML"),
        (b"[" * 100_000, "neither JSON nor YAML"),
        (b'{"kind": "List", "items": ' + b"[" * 100_000, "nested too deeply|truncated"),
        (b'{"kind": "List", "items": "x"}', "items: expected array"),
        (b'{"kind": "ConfigMap", "apiVersion": "v1"}', "only ConfigMap"),
    ],
    ids=lambda value: value[:20],
)
def test_read_cluster_says_why_a_file_is_no_listing(text: bytes, words: str) -> None:
    with pytest.raises(ObjectError, match=words):
        read_cluster(text)


def test_a_list_that_holds_itself_is_bad_not_endless() -> None:
    listing = read_cluster(b"&a\nkind: List\nitems: [*a]\n")

    assert [bad.error.reason for bad in listing.bad] == ["lists inside lists, too deeply"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(
    field=st.sampled_from(["kind", "apiVersion", "metadata", "spec", "status"]),
    of=st.sampled_from(GOOD),
    value=json_values,
)
def test_no_value_in_an_object_spoils_the_listing(
    field: str, of: dict[str, Any], value: object
) -> None:
    listing = read(listed(of | {field: value}, *GOOD))

    assert len(listing.nodes) >= 1
    assert len(listing.pods) >= 1
    assert len(listing.vms) >= 1
