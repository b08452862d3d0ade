"""The table of nodes as people read it."""

from __future__ import annotations

import pytest

from autoscale_enforcer.cli.node_table import (
    GIB,
    MIB,
    Amount,
    Node,
    show_cpu,
    show_memory,
    table,
)


def node(
    name: str = "a", cpu: int = 3920, mem: int = 8 * GIB, pods: int = 7, **more: object
) -> Node:
    fields = {"capacity": Amount(4000, 16 * GIB), "reserved": Amount(cpu, mem), **more}
    return Node(name=name, pods=pods, **fields)  # type: ignore[arg-type]


def rows(*nodes: Node, width: int | None = None) -> list[str]:
    return table(nodes, width=width).splitlines()[1 : 1 + len(nodes)]


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (3920, 4000, "3.92 / 4"),
        (0, 15890, "0 / 15.89"),
        (1, 10, "0.001 / 0.01"),
        (100, 0, "0.1 / 0"),
    ],
)
def test_cpu_is_shown_exactly(part: int, whole: int, text: str) -> None:
    assert show_cpu(part, whole) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (11924406272, 15842 * MIB, "11.1 / 15.5 GiB"),
        (0, 16 * GIB, "0 / 16 GiB"),
        (16 * GIB - 1, 16 * GIB, "16.0 / 16 GiB"),
        (1, 16 * GIB, "0.0 / 16 GiB"),
        (300 * MIB, 512 * MIB, "300 / 512 MiB"),
        (2 * GIB, 0, "2 / 0 GiB"),
    ],
)
def test_memory_without_a_point_is_exact(part: int, whole: int, text: str) -> None:
    assert show_memory(part, whole) == text


def test_table_has_a_row_for_each_node_in_order_and_the_sum() -> None:
    shown = table([node("b", pods=1), node("a", pods=2)], width=None)

    head, first, second, _, summary = shown.splitlines()
    assert head.split() == ["node", "cpu", "memory", "pods", "pressure", "flags"]
    assert first == "a     █████████░ 3.92 / 4  █████░░░░░ 8 / 16 GiB     2  -         -"
    assert second.startswith("b  ")
    assert summary == "2 nodes with 3 pods; reserved 7.84 / 8 CPU and 16 / 32 GiB."


def test_bar_is_full_only_when_nothing_is_left() -> None:
    almost, full, over = rows(node("a", cpu=3999), node("b", cpu=4000), node("c", cpu=9000))

    assert "█████████░ 3.999" in almost
    assert "██████████ 4 /" in full
    assert "██████████ 9 /" in over


def test_what_is_out_of_the_ordinary_is_shown() -> None:
    (row,) = rows(
        node(
            pressure=Amount(500, GIB),
            migrating=Amount(1000, 0),
            over_capacity=True,
            absent=True,
            unsettled=True,
        )
    )

    assert row.endswith("0.5 CPU, 1 GiB  over capacity, absent, unsettled, migrating")


@pytest.mark.parametrize("width", [72, 80, 100, 120])
def test_table_fits_the_screen(width: int) -> None:
    nodes = [node(f"ip-10-0-0-{last}.eu-central-1.compute.internal") for last in range(12)]

    lines = table(nodes, width=width).splitlines()

    assert max(len(line) for line in lines[:13]) <= width
    assert len({line.split()[0] for line in lines[1:13]}) == 12
    assert all("█" in line for line in lines[1:13])


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["node-1.zone.internal", "node-2.zone.internal"], ["node-1…", "node-2…"]),
        (["node-1.a.internal", "node-2.b.internal"], ["node-1.a…", "node-2.b…"]),
        (["a.internal", "internal"], ["a.internal", "internal"]),
        (["a-node-without-domain", "b-node"], ["a-node-without-domain", "b-node"]),
        (["one.node.of.its.own"], ["one…"]),
    ],
)
def test_table_on_a_screen_that_is_too_narrow_makes_no_two_names_alike(
    names: list[str], shown: list[str]
) -> None:
    lines = rows(*map(node, names), width=20)

    assert [line.split()[0] for line in lines] == shown
    assert lines[0].split(maxsplit=1)[1] == "███░ 3.92 / 4  ██░░ 8 / 16 GiB     7  -         -"


def test_table_without_nodes_says_so() -> None:
    assert table([], width=80) == "No nodes are known."
