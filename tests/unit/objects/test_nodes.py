"""Nodes as facts."""

from __future__ import annotations

from typing import Any

import pytest

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.facts import NodeFact
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.objects.decode import convert
from autoscale_enforcer.objects.nodes import read_node
from autoscale_enforcer.objects.shapes import NodeObject
from tests.unit.objects.make import amounts, node, node_json


def test_read_node_takes_allocatable_and_never_capacity() -> None:
    """Field report 14."""
    fact = read_node(
        node(allocatable=amounts("3920m", "15251156Ki"), capacity=amounts("4", "16Gi"))
    )

    assert fact == NodeFact(
        uid="uid-n1",
        name=NodeName("n1"),
        resource_version="5",
        allocatable=Resources(3920, 15617183744),
    )


@pytest.mark.parametrize(
    ("allocatable", "expected"),
    [
        (amounts("3999.9m", "1023.9"), Resources(3999, 1023)),
        (amounts("100u", "1m"), NOTHING),
        (amounts(4), Resources(4000, 0)),
        (amounts(None, "1Gi"), Resources(0, 1 << 30)),
        (amounts("0", "0"), NOTHING),
    ],
)
def test_read_node_rounds_down(allocatable: dict[str, Any], expected: Resources) -> None:
    assert read_node(node(allocatable=allocatable)).allocatable == expected


@pytest.mark.parametrize(
    ("source", "path"),
    [
        (node(capacity=amounts("4", "16Gi")), "status.allocatable"),
        (node(allocatable={"pods": "110"}), "status.allocatable"),
        (NodeObject(), "status.allocatable"),
        (node(allocatable=amounts("four", "16Gi")), "status.allocatable.cpu"),
        (node(allocatable=amounts("4", "-1")), "status.allocatable.memory"),
    ],
)
def test_read_node_names_what_cannot_be_read(source: NodeObject, path: str) -> None:
    with pytest.raises(ObjectError) as refusal:
        read_node(source)
    assert refusal.value.path == path


@pytest.mark.parametrize("field", ["name", "uid", "resourceVersion"])
def test_a_node_that_rows_could_not_hold_is_refused(field: str) -> None:
    source = node_json()
    source["metadata"][field] = "a b"

    with pytest.raises(ObjectError) as refusal:
        read_node(convert(source, NodeObject))
    assert refusal.value.path == f"metadata.{field}"
