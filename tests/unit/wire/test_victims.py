from __future__ import annotations

import json
from typing import Any

import pytest

from autoscale_enforcer.errors import WireError
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.wire.victims import Victims, decode_preempt_request, encode_preempt_answer

N1 = NodeName("n1")
POD = {"metadata": {"namespace": "default", "name": "vip-0", "uid": "vip"}}
TWO = Victims(uids=(PodUid("u1"), PodUid("u2")), pdb_violations=1)
META = {"Pods": [{"UID": "u1"}, {"UID": "u2"}], "NumPDBViolations": 1}
WHOLE = {"Pods": [{"metadata": {"uid": uid}} for uid in ("u1", "u2")], "NumPDBViolations": 1}


def decoded(**fields: Any) -> dict[NodeName, Victims]:
    return dict(decode_preempt_request(json.dumps({"Pod": POD, **fields}).encode()).victims)


def lower(victims: dict[str, Any]) -> dict[str, Any]:
    return {key.lower(): value for key, value in victims.items()}


@pytest.mark.parametrize(
    "fields",
    [
        {"NodeNameToMetaVictims": {"n1": META}, "NodeNameToVictims": None},
        {"NodeNameToVictims": {"n1": WHOLE}, "NodeNameToMetaVictims": None},
        {"nodeToVictims": {"n1": WHOLE}},
        {"nodeToVictims": {"n1": lower(WHOLE)}},
        {"nodenametovictims": {"n1": lower(WHOLE)}},
        {"nodeNameToMetaVictims": {"n1": lower(META)}},
        {"NodeNameToMetaVictims": {"n1": META | {"pods": [{"uid": "u1"}, {"Uid": "u2", "x": 1}]}}},
        {"NodeNameToMetaVictims": {"n1": META | {"Pods": [{"UID": "u1"}, *META["Pods"]]}}},  # type: ignore[misc]  # a list
        {"NodeNameToMetaVictims": {"n1": META}, "NodeNameToVictims": {"n2": WHOLE}},
    ],
)
def test_preempt_reads_every_spelling(fields: dict[str, Any]) -> None:
    assert decoded(**fields) == {N1: TWO}


@pytest.mark.parametrize(
    "victims",
    [None, {}, {"Pods": None}, {"Pods": [], "NumPDBViolations": None}],
)
def test_preempt_takes_nodes_without_victims(victims: object) -> None:
    """kube-scheduler offers a node with an empty list where nobody has to leave (PR 135486)."""
    assert decoded(NodeNameToMetaVictims={"n1": victims}) == {N1: Victims(uids=())}


def test_preempt_takes_an_empty_offer() -> None:
    assert decoded(NodeNameToMetaVictims={}) == {}


def test_node_names_keep_their_case() -> None:
    victims = decoded(nodenametometavictims={"N1": META, "n1": META})

    assert victims == {NodeName("N1"): TWO, N1: TWO}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "NodeNameToMetaVictims"),
        ({"NodeNameToMetaVictims": None, "NodeNameToVictims": None}, "NodeNameToMetaVictims"),
        ({"NodeNameToMetaVictims": []}, "NodeNameToMetaVictims"),
        ({"NodeNameToMetaVictims": {"a b": META}}, "NodeNameToMetaVictims: name of a node"),
        ({"NodeNameToMetaVictims": {"n1": 3}}, "NodeNameToMetaVictims[n1]"),
        ({"NodeNameToMetaVictims": {"n1": {"Pods": 3}}}, "NodeNameToMetaVictims[n1].Pods"),
        ({"NodeNameToMetaVictims": {"n1": {"Pods": [3]}}}, "NodeNameToMetaVictims[n1].Pods[0]"),
        (
            {"nodeNameToMetaVictims": {"n1": {"pods": [{}]}}},
            "NodeNameToMetaVictims[n1].Pods[0].UID",
        ),
        (
            {"NodeNameToMetaVictims": {"n1": META | {"NumPDBViolations": 1.5}}},
            "NodeNameToMetaVictims[n1].NumPDBViolations",
        ),
        (
            {"NodeNameToMetaVictims": {"n1": META | {"NumPDBViolations": 10**30}}},
            "NodeNameToMetaVictims[n1].NumPDBViolations",
        ),
        ({"nodeToVictims": {"n1": {"Pods": [{}]}}}, "NodeNameToVictims[n1].Pods[0].metadata"),
        (
            {"NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"uid": ""}}]}}},
            "NodeNameToVictims[n1].Pods[0].metadata.uid",
        ),
        ({"Pod": None, "NodeNameToMetaVictims": {}}, "Pod"),
    ],
)
def test_preempt_names_the_bad_field(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(WireError) as caught:
        decoded(**fields)

    assert caught.value.path == path


def test_preempt_answers_meta_victims() -> None:
    assert json.loads(encode_preempt_answer({N1: TWO})) == {"NodeNameToMetaVictims": {"n1": META}}
    assert encode_preempt_answer({}) == b'{"NodeNameToMetaVictims":{}}'
