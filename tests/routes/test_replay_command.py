"""The replay command from option to exit code, against a stub extender that lies on request."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner, Result

from autoscale_enforcer.cli.main import COMMANDS, LazyCommand, main
from tests.support.ports import free_port

TRAFFIC = Path(__file__).parents[1] / "data" / "traffic"
REPLICAS = ("one", "two", "three")

Lie = Callable[[Any], Any]


def honest(verb: str, request: Any) -> Any:
    """What an extender that allows everything answers."""
    if verb == "bind":
        return {"Error": ""}
    if verb == "preempt":
        return {"NodeNameToMetaVictims": offered_victims(request)}
    if verb == "prioritize":
        return [{"Host": name, "Score": 5} for name in offered_names(request)]
    empty = {"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
    return {"Nodes": request["Nodes"], "NodeNames": request["NodeNames"], **empty}


def offered_names(request: Any) -> list[str]:
    if request["Nodes"] is None:
        return list(request["NodeNames"])
    return [node["metadata"]["name"] for node in request["Nodes"]["items"]]


def offered_victims(request: Any) -> dict[str, Any]:
    whole = request["NodeNameToVictims"] or {}
    return request["NodeNameToMetaVictims"] or {
        node: {
            "Pods": [{"UID": pod["metadata"]["uid"]} for pod in victims["Pods"]],
            "NumPDBViolations": victims.get("NumPDBViolations", 0),
        }
        for node, victims in whole.items()
    }


@dataclass
class Stub:
    """An extender that answers honestly, save for the one verb it is told to lie about."""

    url: str = ""
    lies: dict[str, Lie] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    connections: list[object] = field(default_factory=list)
    """By request, each kept: a port or an address may be given again to a later one."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        verb = request.match_info["verb"]
        body = await request.read()
        assert request.transport is not None
        self.connections.append(request.protocol)
        self.bodies.append(body)
        result = honest(verb, json.loads(body))
        if verb in self.lies:
            result = self.lies[verb](result)
        if result is None:
            request.transport.close()
            return web.Response()
        if not isinstance(result, web.Response):
            result = web.json_response(result)
        result.headers["X-Replica"] = REPLICAS[len(self.bodies) % 3]
        return result


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    stub = Stub()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/extender/{verb}", stub.answer)
    async with TestServer(app) as server:
        stub.url = str(server.make_url("/extender"))
        yield stub


async def run(*arguments: object, environment: dict[str, str] | None = None) -> Result:
    texts = [str(argument) for argument in arguments]
    return await asyncio.to_thread(CliRunner().invoke, main, texts, env=environment)


async def replay(stub: Stub, name: str, *options: str) -> Result:
    return await run("replay", TRAFFIC / name, "--extender", stub.url, *options)


def requests_of(name: str) -> list[str]:
    lines = (TRAFFIC / name).read_text().splitlines()
    return [line.partition('"request":')[2].removesuffix("}") for line in lines]


@pytest.mark.parametrize("name", ["names.jsonl", "nodes.jsonl"])
async def test_replay_of_honest_answers_ends_with_0(stub: Stub, name: str) -> None:
    result = await replay(stub, name)

    assert result.exit_code == 0, result.output
    assert "No disagreement: every answer was legal." in result.stdout
    assert "3: one, three, two" in result.stdout


@pytest.mark.parametrize("name", ["names.jsonl", "nodes.jsonl"])
async def test_replay_sends_the_recorded_bytes_over_new_connections(stub: Stub, name: str) -> None:
    await replay(stub, name)

    assert [body.decode() for body in stub.bodies] == requests_of(name)
    assert len(set(map(id, stub.connections))) == len(stub.connections)


async def test_replay_json_has_every_count(stub: Stub) -> None:
    result = await replay(stub, "names.jsonl", "--json")

    document = json.loads(result.stdout)
    calls = {verb: counts["calls"] for verb, counts in document["verbs"].items()}
    assert calls == {"filter": 109, "prioritize": 108, "bind": 109, "preempt": 4}
    assert document["all"]["calls"] == 330
    assert document["all"]["refused"] == 0
    assert document["all"]["replicas"] == {"one": 110, "two": 110, "three": 110}
    assert document["disagreementCount"] == 0
    assert result.exit_code == 0


def passed_twice(result: Any) -> Any:
    return {**result, "NodeNames": [*result["NodeNames"], result["NodeNames"][0]]}


def not_offered(result: Any) -> Any:
    return {**result, "NodeNames": [*result["NodeNames"], "stranger"]}


def in_two_lists(result: Any) -> Any:
    return {**result, "FailedNodes": {result["NodeNames"][0]: "full"}}


def in_no_list(result: Any) -> Any:
    return {**result, "NodeNames": result["NodeNames"][1:]}


def as_nodes(result: Any) -> Any:
    items = [{"metadata": {"name": name}} for name in result["NodeNames"]]
    return {**result, "NodeNames": None, "Nodes": {"items": items}}


def as_names(result: Any) -> Any:
    names = [node["metadata"]["name"] for node in result["Nodes"]["items"]]
    return {**result, "NodeNames": names, "Nodes": None}


def changed_node(result: Any) -> Any:
    result["Nodes"]["items"][0]["status"]["nodeInfo"]["machineID"] = "other"
    return result


def first_score(score: object) -> Lie:
    return lambda result: [{**result[0], "Score": score}, *result[1:]]


def first_victims(victims: object) -> Lie:
    def lie(result: Any) -> Any:
        by_node = result["NodeNameToMetaVictims"]
        first = next(iter(by_node))
        return {"NodeNameToMetaVictims": {**by_node, first: {**by_node[first], "Pods": victims}}}

    return lie


def status_500(_result: Any) -> Any:
    return web.Response(status=500, text="Traceback")


def not_json(_result: Any) -> Any:
    return web.Response(text="<html>")


@pytest.mark.parametrize(
    ("name", "verb", "lie", "words"),
    [
        ("names.jsonl", "filter", passed_twice, "passed more than once"),
        ("names.jsonl", "filter", not_offered, "answered but not offered: stranger"),
        ("names.jsonl", "filter", in_two_lists, "in more than one list"),
        ("names.jsonl", "filter", in_no_list, "offered but in no list"),
        ("names.jsonl", "filter", as_nodes, "asked with NodeNames, answered with Nodes"),
        ("nodes.jsonl", "filter", as_names, "asked with Nodes, answered with NodeNames"),
        ("nodes.jsonl", "filter", changed_node, "Node objects came back changed"),
        ("names.jsonl", "filter", status_500, "answered HTTP 500: Traceback"),
        ("names.jsonl", "filter", not_json, "the answer cannot be read"),
        ("names.jsonl", "prioritize", first_score(11), "no whole number from 0 to 10"),
        ("names.jsonl", "prioritize", first_score(5.0), "no whole number from 0 to 10"),
        ("names.jsonl", "prioritize", lambda result: result[1:], "offered but without a score"),
        ("nodes.jsonl", "prioritize", lambda result: result[1:], "offered but without a score"),
        ("names.jsonl", "preempt", first_victims([]), "no victims on"),
        ("nodes.jsonl", "preempt", first_victims([]), "no victims on"),
        ("names.jsonl", "preempt", first_victims([{"UID": "x"}]), "were not offered: x on"),
        ("names.jsonl", "bind", lambda _: {"Error": "no room"}, "refused on ip-10-0-0-"),
    ],
    ids=[
        "node twice",
        "node not offered",
        "node in two lists",
        "node in no list",
        "nodes for names",
        "names for nodes",
        "node changed",
        "HTTP 500",
        "no JSON",
        "score 11",
        "score 5.0",
        "score missing",
        "score missing in nodes mode",
        "no victims",
        "no victims in nodes mode",
        "unknown victim",
        "bind refused",
    ],
)
async def test_replay_of_an_illegal_answer_ends_with_1(
    stub: Stub, name: str, verb: str, lie: Lie, words: str
) -> None:
    stub.lies[verb] = lie

    result = await replay(stub, name, "--json")

    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert document["disagreements"][0]["verb"] == verb
    assert words in document["disagreements"][0]["text"]
    assert document["disagreementCount"] >= document["verbs"][verb]["calls"]


async def test_replay_counts_refused_binds_and_shows_where(stub: Stub) -> None:
    stub.lies["bind"] = lambda _: {"Error": "Insufficient cpu left by reservations"}

    result = await replay(stub, "nodes.jsonl")

    row = next(line for line in result.stdout.splitlines() if line.startswith("bind"))
    assert row.split()[1:3] == ["40", "40"]
    assert "Disagreements: 40" in result.stdout
    assert "bind  default/none-00000  refused on ip-10-0-0-" in result.stdout
    assert result.exit_code == 1


async def test_replay_reports_a_bind_on_a_node_that_the_filter_refused(stub: Stub) -> None:
    def refuse_all(result: Any) -> Any:
        failed = dict.fromkeys(result["NodeNames"], "full")
        return {**result, "NodeNames": [], "FailedNodes": failed}

    stub.lies["filter"] = refuse_all

    result = await replay(stub, "names.jsonl", "--json")

    document = json.loads(result.stdout)
    verbs = Counter(found["verb"] for found in document["disagreements"])
    assert set(verbs) == {"bind"}
    assert document["disagreementCount"] == 109
    assert "was not passed by the filter before, which passed none" in result.stdout
    assert document["verbs"]["filter"]["refused"] == 109


async def test_replay_reports_an_answer_that_got_lost_and_goes_on(stub: Stub) -> None:
    bound: list[object] = []

    def lose_the_first(result: Any) -> Any:
        bound.append(result)
        return result if len(bound) > 1 else None

    stub.lies["bind"] = lose_the_first

    result = await replay(stub, "nodes.jsonl", "--json")

    document = json.loads(result.stdout)
    assert [found["text"] for found in document["disagreements"]] == [
        "no answer: Server disconnected"
    ]
    assert document["verbs"]["bind"]["calls"] == 40
    assert result.exit_code == 1


@pytest.fixture
def closed_url() -> str:
    return f"http://127.0.0.1:{free_port()}"


async def test_replay_to_an_address_where_nobody_listens_ends_with_3(closed_url: str) -> None:
    result = await run("replay", TRAFFIC / "names.jsonl", "--extender", closed_url)

    assert result.exit_code == 3
    reason = f"cannot reach the extender at {closed_url}/extender: Connection refused"
    assert reason in result.stderr
    assert result.stdout == ""


async def test_replay_json_is_a_document_even_when_nobody_listens(closed_url: str) -> None:
    result = await run("replay", TRAFFIC / "names.jsonl", "--extender", closed_url, "--json")

    assert result.exit_code == 3
    assert "Connection refused" in json.loads(result.stdout)["unreachable"]


async def test_replay_gives_up_on_a_service_that_says_nothing(stub: Stub) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"

        result = await run("replay", TRAFFIC / "names.jsonl", "--extender", url, "--timeout", "0.1")

    assert result.exit_code == 3
    assert "3 calls in a row got no answer" in result.stderr
    assert "no answer: none within 0.1 s" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([TRAFFIC / "names.jsonl"], "needs --extender URL, or --print-cluster"),
        ([TRAFFIC / "absent.jsonl", "--extender", "http://h"], "does not exist"),
        ([TRAFFIC / "agent.jsonl", "--extender", "http://h"], "line 1: Object missing"),
        ([TRAFFIC / "names.jsonl", "--extender", "localhost:1"], "is no address like http://"),
        ([TRAFFIC / "names.jsonl", "--extender", "http://h", "--timeout", "0"], "more than 0"),
        ([TRAFFIC / "names.jsonl", "--extender", "http://h", "--timeout", "nan"], "no number"),
        ([TRAFFIC / "names.jsonl", "--print-cluster"], "only their names"),
    ],
)
async def test_replay_used_wrongly_ends_with_2(arguments: list[object], words: str) -> None:
    result = await run("replay", *arguments)

    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


async def test_replay_of_a_file_with_a_bad_line_sends_nothing(stub: Stub, tmp_path: Path) -> None:
    recording = tmp_path / "cut.jsonl"
    recording.write_bytes((TRAFFIC / "names.jsonl").read_bytes()[:5000])

    result = await run("replay", recording, "--extender", stub.url)

    assert result.exit_code == 2
    assert "line " in result.stderr
    assert stub.bodies == []


async def test_replay_print_cluster_prints_a_list_of_nodes() -> None:
    result = await run("replay", TRAFFIC / "nodes.jsonl", "--print-cluster")

    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert document["kind"] == "List"
    assert [item["kind"] for item in document["items"]] == ["Node"] * 6


async def test_replay_takes_its_options_from_the_environment(stub: Stub) -> None:
    environment = {"AE_EXTENDER": stub.url, "AE_JSON": "1"}

    result = await run("replay", TRAFFIC / "nodes.jsonl", environment=environment)

    assert json.loads(result.stdout)["all"]["calls"] == 123


async def test_help_shows_every_command_and_exit_code_and_imports_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(COMMANDS, "broken", LazyCommand("no.such.module:command", "Is not there."))

    result = await run("--help")

    assert result.exit_code == 0
    assert "Is not there." in result.stdout
    for row in ["0  done", "1  the check found", "2  wrong use", "3  the service", "4  refused"]:
        assert row in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
async def test_each_command_explains_itself(name: str) -> None:
    result = await run(name, "--help")

    assert result.exit_code == 0
    assert COMMANDS[name].line in " ".join(result.stdout.split())
    assert "autoscale-enforcer " in result.stdout
    assert "Exit codes:" in result.stdout


async def test_a_command_nobody_knows_ends_with_2() -> None:
    assert (await run("rpelay")).exit_code == 2
