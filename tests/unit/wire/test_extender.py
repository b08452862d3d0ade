from __future__ import annotations

import json
from typing import Any

import pytest

from autoscale_enforcer.errors import WireError
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.wire.extender import (
    ReserveCode,
    decode_bind_request,
    decode_filter_request,
    decode_reserve_request,
    decode_unreserve_request,
    encode_bind_answer,
    encode_filter_answer,
    encode_filter_error,
    encode_reserve_answer,
    encode_scores,
)
from autoscale_enforcer.wire.pods import PodReference, SentPod

N1, N2 = NodeName("n1"), NodeName("n2")
REFERENCE = PodReference(namespace="default", name="web-0", uid=PodUid("u1"))


def pod(**more: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "default", "name": "web-0", "uid": "u1"}, **more}


def asking(cpu: object) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return pod(spec={"containers": [container]})


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


# The spacing, the escape, the number and the unknown field are there to be kept.
NODE_1 = rb'{ "metadata": {"name":"n1"}, "spec" : {"x": 1.50e1,"y":"\u00e9 "} }'
NODE_2 = b'{"metadata":{"name":"n2","uid":"k2"},"Status":null}'


def whole_nodes(*nodes: bytes, items: str = "items") -> bytes:
    listed = b'{"metadata":{"resourceVersion":"7"},"%s":[%s]}' % (items.encode(), b",".join(nodes))
    return b'{"Pod":%s,"Nodes":%s,"NodeNames":null}' % (json.dumps(pod()).encode(), listed)


def test_filter_by_names() -> None:
    request = decode_filter_request(body(Pod=asking("250m"), Nodes=None, NodeNames=["n1", "n2"]))

    assert request.nodes.names == (N1, N2)
    assert request.nodes.whole is None
    assert request.nodes.document(N1) is None
    assert request.pod.reference == REFERENCE
    assert request.pod.fact is not None
    assert request.pod.fact.requests.cpu == 250


def test_filter_answers_by_names_what_was_asked_by_names() -> None:
    request = decode_filter_request(body(Pod=pod(), NodeNames=["n1", "n2", "n3"]))

    answer = encode_filter_answer(
        request.nodes, passed=[N2], failed={N1: "full"}, unresolvable={NodeName("n3"): "never"}
    )

    assert json.loads(answer) == {
        "Nodes": None,
        "NodeNames": ["n2"],
        "FailedNodes": {"n1": "full"},
        "FailedAndUnresolvableNodes": {"n3": "never"},
        "Error": "",
    }


@pytest.mark.parametrize("items", ["items", "Items"])
def test_whole_nodes_travel_back_byte_for_byte(items: str) -> None:
    request = decode_filter_request(whole_nodes(NODE_1, NODE_2, items=items))

    answer = encode_filter_answer(request.nodes, passed=[N2, N1], failed={}, unresolvable={})

    assert b'"items":[%s,%s]' % (NODE_2, NODE_1) in answer
    assert json.loads(answer)["NodeNames"] is None
    assert json.loads(answer)["Nodes"]["metadata"] == {"resourceVersion": "7"}


def test_whole_nodes_can_be_read() -> None:
    document = decode_filter_request(whole_nodes(NODE_1, NODE_2)).nodes.document(N2)

    assert document is not None
    assert document.metadata is not None
    assert document.metadata.uid == "k2"


def test_a_whole_node_that_makes_no_sense_is_named() -> None:
    broken = b'{"metadata":{"name":"n1"},"status":[]}'

    with pytest.raises(WireError) as caught:
        decode_filter_request(whole_nodes(broken)).nodes.document(N1)

    assert caught.value.path == "Nodes.items(n1).status"


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"NodeNames": []}, ()),
        ({"Nodes": {"items": None}}, ()),
        ({"Nodes": {"metadata": None, "items": []}}, ()),
        ({"NodeNames": ["n1", "n2", "n1"]}, (N1, N2)),
        ({"NodeNames": ["n2"], "Nodes": {"items": [pod()]}}, (N2,)),
        ({"NodeNames": [], "Nodes": {"items": [{"metadata": {"name": "n1"}}]}}, (N1,)),
        ({"Nodes": {"kind": "NodeList", "apiVersion": "v1", "items": [], "more": 1}}, ()),
    ],
)
def test_filter_takes_what_is_offered(fields: dict[str, Any], names: tuple[NodeName]) -> None:
    assert decode_filter_request(body(Pod=pod(), **fields)).nodes.names == names


def test_an_empty_offer_gets_an_empty_answer_of_its_mode() -> None:
    named = decode_filter_request(body(Pod=pod(), NodeNames=[])).nodes
    whole = decode_filter_request(body(Pod=pod(), Nodes={"items": None})).nodes

    answers = [
        json.loads(encode_filter_answer(nodes, passed=[], failed={}, unresolvable={}))
        for nodes in (named, whole)
    ]

    assert (answers[0]["NodeNames"], answers[0]["Nodes"]) == ([], None)
    assert (answers[1]["NodeNames"], answers[1]["Nodes"]) == (None, {"metadata": {}, "items": []})


@pytest.mark.parametrize(
    "fields",
    [
        {"pod": asking(1), "nodenames": ["n1"], "nodes": None},
        {"POD": asking(1), "NODENAMES": ["n1"]},
        {"Pod": asking(1), "NodeNames": ["n1"], "Unknown": {"Pod": 1}},
        {"Pod": pod(), "NodeNames": ["n2"], "nodenames": ["n1"], "pod": asking(1)},
        {"nodenames": 1, "NodeNames": ["n1"], "pOD": 2, "Pod": asking(1)},
    ],
)
def test_keys_come_in_any_case_and_the_last_one_counts(fields: dict[str, Any]) -> None:
    expected = decode_filter_request(body(Pod=asking(1), Nodes=None, NodeNames=["n1"]))

    assert decode_filter_request(body(**fields)) == expected


def test_the_last_of_three_spellings_counts_even_where_one_is_repeated() -> None:
    fields = b'"nodenames":["a"],"NodeNames":["b"],"nodenames":["c"]'

    request = decode_filter_request(b'{"Pod":%s,%s}' % (json.dumps(pod()).encode(), fields))

    assert request.nodes.names == ("c",)


def test_null_is_empty_everywhere_in_a_pod() -> None:
    nulls = pod(spec={"containers": None, "initContainers": None, "overhead": None}, status=None)
    for field in ("annotations", "labels", "ownerReferences"):
        nulls["metadata"][field] = None

    fact = decode_filter_request(body(Pod=nulls, NodeNames=["n1"])).pod.fact

    assert fact is not None
    assert fact.requests.cpu == 0


def test_a_pod_whose_requests_make_no_sense_is_no_bad_request() -> None:
    request = decode_filter_request(body(Pod=asking("abc"), NodeNames=["n1"]))

    assert request.pod.reference == REFERENCE
    assert request.pod.fact is None
    assert request.pod.problem is not None
    assert request.pod.problem.path == "Pod.spec.containers[0].resources.requests.cpu"


def named(field: str, value: object) -> dict[str, Any]:
    return {"metadata": {**pod()["metadata"], field: value}}


BAD_FILTERS: list[tuple[bytes, str]] = [
    (b"", ""),
    (b"nonsense", ""),
    (b"[]", ""),
    (b"null", ""),
    (b'"Pod"', ""),
    (b"{}", "NodeNames"),
    (b"{} {}", ""),
    (b'\xef\xbb\xbf{"Pod":1}', ""),
    (b'{"Pod":{"metadata":{"name":"\xff"}},"NodeNames":[]}', ""),
    (b'{"Pod":{},"NodeNames":["\\ud800"]}', ""),
    (b'{"Pod":%s%s,"NodeNames":[]}' % (b"[" * 99999, b"]" * 99999), ""),
    (b'{"pod":%s%s,"NodeNames":[]}' % (b"[" * 99999, b"]" * 99999), ""),
    (b'{"Pod":tru,"NodeNames":[]}', ""),
    (body(Pod=pod()), "NodeNames"),
    (body(Pod=pod(), NodeNames=None, Nodes=None), "NodeNames"),
    (body(NodeNames=["n1"]), "Pod"),
    (body(Pod=None, NodeNames=["n1"]), "Pod"),
    (body(Pod=7, NodeNames=["n1"]), "Pod"),
    (body(Pod={}, NodeNames=["n1"]), "Pod.metadata"),
    (body(Pod={"metadata": []}, NodeNames=["n1"]), "Pod.metadata"),
    (body(Pod=named("name", None), NodeNames=["n1"]), "Pod.metadata.name"),
    (body(Pod=named("name", "a b"), NodeNames=["n1"]), "Pod.metadata.name"),
    (body(Pod=named("namespace", ""), NodeNames=["n1"]), "Pod.metadata.namespace"),
    (body(Pod=named("uid", "u" * 129), NodeNames=["n1"]), "Pod.metadata.uid"),
    (body(Pod=named("uid", 5), NodeNames=["n1"]), "Pod.metadata.uid"),
    (body(Pod=pod(spec={"containers": "x"}), NodeNames=["n1"]), "Pod.spec.containers"),
    (body(pod=pod(spec={"containers": [1]}), NodeNames=["n1"]), "Pod.spec.containers[0]"),
    (body(Pod=pod(), NodeNames="n1"), "NodeNames"),
    (body(Pod=pod(), NodeNames=["a", "b", "c", 4]), "NodeNames[3]"),
    (body(Pod=pod(), nodenames=["a", "b", "c", 4]), "NodeNames[3]"),
    (body(Pod=pod(), NodeNames=["a", "b", "c", "\0"]), "NodeNames[3]"),
    (body(Pod=pod(), NodeNames=["a", ""]), "NodeNames[1]"),
    (body(Pod=pod(), NodeNames=["a" * 254]), "NodeNames[0]"),
    (body(Pod=pod(), Nodes=[]), "Nodes"),
    (body(Pod=pod(), Nodes={"items": {}}), "Nodes.items"),
    (body(Pod=pod(), Nodes={"items": [None]}), "Nodes.items[0]"),
    (body(Pod=pod(), Nodes={"items": [{}]}), "Nodes.items[0].metadata"),
    (body(Pod=pod(), nodes={"items": [{"metadata": {}}]}), "Nodes.items[0].metadata.name"),
    (whole_nodes(NODE_1, b'{"metadata":{"name":"a b"}}'), "Nodes.items[1].metadata.name"),
]


@pytest.mark.parametrize(("bad", "path"), BAD_FILTERS)
def test_a_filter_that_cannot_be_read_names_the_field(bad: bytes, path: str) -> None:
    with pytest.raises(WireError) as caught:
        decode_filter_request(bad)

    assert caught.value.path == path
    assert caught.value.reason


def test_both_node_modes_missing_names_both() -> None:
    with pytest.raises(WireError, match=r"^NodeNames: .*Nodes"):
        decode_filter_request(body(Pod=pod()))


BIND = {"PodName": "web-0", "PodNamespace": "default", "PodUID": "u1", "Node": "n1"}


@pytest.mark.parametrize("change", [str, str.lower, str.upper])
def test_bind_reads_keys_in_any_case(change: Any) -> None:
    request = decode_bind_request(body(**{change(key): value for key, value in BIND.items()}))

    assert request.pod == REFERENCE
    assert request.node == N1


@pytest.mark.parametrize("field", BIND)
@pytest.mark.parametrize("value", [None, "", "a b", "a\0b", "x" * 254, 5, {}, 10**400])
def test_bind_refuses_each_field_that_is_no_name(field: str, value: object) -> None:
    with pytest.raises(WireError) as caught:
        decode_bind_request(body(**BIND | {field: value}))

    assert caught.value.path == field


@pytest.mark.parametrize("field", BIND)
def test_bind_needs_each_field(field: str) -> None:
    with pytest.raises(WireError, match="is required") as caught:
        decode_bind_request(body(**{key: BIND[key] for key in BIND if key != field}))

    assert caught.value.path == field


@pytest.mark.parametrize(
    "sent",
    [
        {"Namespace": "default", "Name": "web-0", "UID": "u1"},
        {"namespace": "default", "name": "web-0", "uid": "u1"},
        {"NAMESPACE": "default", "NAME": "web-0", "Uid": "u1", "metadata": None, "more": 1},
    ],
)
def test_reserve_takes_a_reference(sent: dict[str, Any]) -> None:
    request = decode_reserve_request(body(Pod=sent, NodeName="n1"))

    assert request.pod == REFERENCE
    assert request.node == N1


def test_reserve_takes_a_whole_pod() -> None:
    sent = decode_reserve_request(body(pod=asking("1500m"), nodename="n1")).pod

    assert isinstance(sent, SentPod)
    assert sent.fact is not None
    assert sent.fact.requests.cpu == 1500


@pytest.mark.parametrize("sent", [pod(), asking("abc"), pod(spec="broken")])
def test_unreserve_needs_no_more_of_a_whole_pod_than_which_it_is(sent: dict[str, Any]) -> None:
    request = decode_unreserve_request(body(Pod=sent, NodeName="n1"))

    assert request.pod == REFERENCE
    assert request.node == N1


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"NodeName": "n1"}, "Pod"),
        ({"NodeName": "n1", "Pod": {}}, "Pod.Namespace"),
        ({"NodeName": "n1", "Pod": []}, "Pod"),
        ({"NodeName": "n1", "Pod": {"namespace": "d", "name": "x"}}, "Pod.UID"),
        ({"NodeName": "n1", "Pod": {"namespace": "d", "name": "x\n", "uid": "u"}}, "Pod.Name"),
        ({"NodeName": "n1", "Pod": {"metadata": {"namespace": "d"}}}, "Pod.metadata.name"),
        ({"Pod": pod()}, "NodeName"),
        ({"Pod": pod(), "NodeName": ""}, "NodeName"),
        ({"Pod": pod(), "nodename": 7}, "NodeName"),
    ],
)
def test_reserve_and_unreserve_name_the_bad_field(fields: dict[str, Any], path: str) -> None:
    for decode in (decode_reserve_request, decode_unreserve_request):
        with pytest.raises(WireError) as caught:
            decode(body(**fields))

        assert caught.value.path == path


def test_short_answers() -> None:
    assert json.loads(encode_filter_error("later")) == {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "later",
    }
    assert encode_bind_answer() == b'{"Error":""}'
    assert encode_bind_answer("taken") == b'{"Error":"taken"}'
    assert encode_scores([N1, N2], [10, 0]) == b'[{"Host":"n1","Score":10},{"Host":"n2","Score":0}]'
    assert encode_scores([], []) == b"[]"
    assert encode_reserve_answer(ReserveCode.SUCCESS) == b'{"Code":"Success","Reasons":[]}'
    assert json.loads(encode_reserve_answer(ReserveCode.UNRESOLVABLE, ["too big"])) == {
        "Code": "UnschedulableAndUnresolvable",
        "Reasons": ["too big"],
    }
