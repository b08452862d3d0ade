"""What kube-scheduler sends for a pod, encoded beforehand, and what the answers say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from bench.cluster import Json, node, node_name, plain_pod
from bench.figures import WrongAnswer
from bench.load import request

IMAGES = 66
"""Of a whole node: some 15 KiB, as most real ones have."""

SIZES = ("100m", "250m", "500m", "1", "2", "12", "24")
"""CPU of the pods that are asked about: the last two are too large for some of the nodes."""


def asked_pod(number: int) -> Json:
    """A pending pod, as kube-scheduler's cache has it: without managedFields."""
    made = plain_pod(number, "", uid=f"00000000-0000-4000-8000-{number:012}")
    made["metadata"]["name"] = f"asked-{number:05}"
    del made["metadata"]["managedFields"], made["kind"], made["apiVersion"]
    resources = made["spec"]["containers"][0]["resources"]
    resources["requests"]["cpu"] = SIZES[number % len(SIZES)]
    return made


def names_body(number: int, nodes: int) -> bytes:
    """ExtenderArgs that name so many nodes."""
    names = [node_name(at) for at in range(nodes)]
    return _encoded({"Pod": asked_pod(number), "Nodes": None, "NodeNames": names})


def nodes_body(number: int, nodes: int) -> bytes:
    """ExtenderArgs that hold so many whole nodes."""
    items = [node(at, uid=f"{at:036}", images=IMAGES) for at in range(nodes)]
    for each in items:
        del each["kind"], each["apiVersion"]
    whole = {"metadata": {}, "items": items}
    return _encoded({"Pod": asked_pod(number), "Nodes": whole, "NodeNames": None})


def bodies_as_requests(url: str, bodies: Sequence[bytes]) -> list[bytes]:
    """For one extender; `url` is without a verb."""
    return [request(f"{url}/filter", body) for body in bodies]


def passed(body: bytes) -> set[str]:
    """The nodes that an ExtenderFilterResult lets through."""
    answer: dict[str, Any] = json.loads(body)
    if answer.get("Error"):
        raise WrongAnswer(f"filter: {answer['Error']}")
    if answer.get("Nodes"):
        return {each["metadata"]["name"] for each in answer["Nodes"]["items"]}
    return set(answer["NodeNames"] or [])


def same_answer(ours: bytes, theirs: bytes) -> None:
    """Raise WrongAnswer where the two let other nodes through."""
    if passed(ours) != passed(theirs):
        differing = sorted(passed(ours) ^ passed(theirs))
        raise WrongAnswer(f"filter: the peer decides otherwise of {differing[:3]}")


def _encoded(body: Json) -> bytes:
    return msgspec.json.encode(body)
