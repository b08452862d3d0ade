"""A row has named fields in one place in Lua and one in Python: the same ones."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from autoscale_enforcer.ledger.scripts import scripts_folder
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.resources import MAX_MEM_BYTES
from autoscale_enforcer.model.rows import NodeRow, PodRow, said_row
from tests.support.servers import Server

ROWS = pytest.mark.parametrize(
    ("lua", "row"), [("node_row", NodeRow), ("pod_row", PodRow)], ids=["node", "pod"]
)


def library(name: str) -> str:
    return (scripts_folder() / "lib" / f"{name}.lua").read_text()


@ROWS
def test_row_fields_are_the_same_in_lua_and_python(lua: str, row: type[NodeRow | PodRow]) -> None:
    text = library(lua)
    written = re.findall(r"value\.(\w+)", text)
    captured = re.search(r"local ([\w,\s]+) = string\.match\(value,\s+'(.*)'\)", text)
    read = re.findall(r"(\w+) = (\w+)( \* 1)?[,\s]", text.partition("  return {\n")[2])

    ours = [(spec.name, spec.type == "int") for spec in fields(row)]

    assert written == [name for name, _ in ours]
    assert re.findall(r"%([sd])[ ']", text) == ["d" if number else "s" for _, number in ours]
    assert captured
    assert captured[1].replace(",", " ").split() == written
    assert captured[2].count("(") == len(ours)
    assert [(name, bool(number)) for name, _, number in read] == ours
    assert [name for name, _, _ in read] == [field for _, field, _ in read]


def test_new_node_has_the_fields_of_an_absent_row() -> None:
    given = dict(re.findall(r"(\w+) = ([\w'-]+)", library("new_node")))

    row = NodeRow(absent=1)

    assert given.keys() == {spec.name for spec in fields(row)}
    assert given.pop("epoch") == "epoch"
    assert all(str(getattr(row, name)) == text.strip("'") for name, text in given.items())


@pytest.mark.parametrize(
    ("lua", "row"),
    [
        ("node_row", NodeRow(uid="x", rv="9" * 30, cap_mem=100 * MAX_MEM_BYTES, version=1 << 52)),
        ("node_row", NodeRow(reserved_cpu=-1)),
        ("pod_row", PodRow(name="a/b", mem=MAX_MEM_BYTES - 1, stamp=1_900_000_000_123_457)),
    ],
)
def test_row_survives_lua_and_python_digit_by_digit(
    valkey_server: Server, lua: str, row: NodeRow | PodRow
) -> None:
    code = "\n".join([library(lua), f"return {lua}({lua}(ARGV[1]))"])

    with valkey_server.client() as client:
        text = client.eval(code, 0, row.encode())

    assert isinstance(text, bytes)
    assert type(row).decode(text.decode()) == row


@pytest.mark.parametrize("text", ["", "a b", "a/b - held"])
def test_row_of_another_number_of_fields_is_no_row(valkey_server: Server, text: str) -> None:
    code = "\n".join([library("pod_row"), "return pod_row(ARGV[1]).name"])

    with pytest.raises(ValueError, match="fields, expected"):
        PodRow.decode(text)
    with (
        valkey_server.client() as client,
        pytest.raises(Exception, match="not a row of a pod, which has 27 fields"),
    ):
        client.eval(code, 0, text)


@pytest.mark.parametrize(
    ("lua", "row"), [("node_row", NodeRow()), ("pod_row", PodRow(name="a/b"))], ids=["node", "pod"]
)
def test_row_with_a_word_in_place_of_a_number_is_no_row(
    valkey_server: Server, lua: str, row: NodeRow | PodRow
) -> None:
    code = "\n".join([library(lua), f"return {lua}(ARGV[1]).node or 'read'"])
    text = row.encode().rpartition(" ")[0] + " many"

    with valkey_server.client() as client, pytest.raises(Exception, match="arithmetic"):
        client.eval(code, 0, text)


def test_said_row_leaves_our_bookkeeping_alone() -> None:
    fact = PodFact(
        uid=PodUid("u1"),
        namespace="default",
        name="web",
        resource_version="7",
        node=NodeName("n1"),
    )

    row = said_row(fact)

    assert (row.name, row.node, row.rv) == ("default/web", "n1", "7")
    assert (row.heard, row.deadline, row.stamp, row.factor_cpu) == ("-", 0, 0, 0)
