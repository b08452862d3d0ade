"""Recorded kube-scheduler traffic against `dev`, as a newcomer runs it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TRAFFIC = Path(__file__).parents[1] / "data" / "traffic"
ITSELF = (sys.executable, "-m", "autoscale_enforcer.cli.main")
EXPECTED: dict[str, dict[str, dict[str, int]]] = json.loads((TRAFFIC / "expected.json").read_text())


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ITSELF, *arguments], capture_output=True, text=True, check=False)


def dev(cluster: Path, script: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """`script` run by a shell beside three replicas; `ae` in it is the command itself."""
    free = ["--extender-port=0", "--agent-port=0", "--admin-port=0"]
    ae = f'ae() {{ {shlex.join(ITSELF)} "$@"; }}; {script}'
    return run("dev", "--cluster", str(cluster), *flags, *free, "--once", ae)


def held(nodes: dict[str, Any]) -> dict[str, dict[str, int]]:
    return {node["name"]: {**node["reserved"], "pods": node["pods"]} for node in nodes["nodes"]}


@pytest.fixture
def six_nodes(tmp_path: Path) -> Path:
    """The cluster that nodes.jsonl carries."""
    path = tmp_path / "nodes-cluster.json"
    path.write_text(run("replay", str(TRAFFIC / "nodes.jsonl"), "--print-cluster").stdout)
    return path


@pytest.mark.parametrize("recording", ["names.jsonl", "nodes.jsonl"])
def test_replay_ends_with_the_books_that_the_recording_implies(
    recording: str, six_nodes: Path
) -> None:
    cluster = TRAFFIC / "cluster.json" if recording == "names.jsonl" else six_nodes
    replay = f"ae replay {TRAFFIC / recording} --json"

    done = dev(
        cluster, f"{replay} && ae status --json && {replay} && ae status --json && ae verify",
        "--without-pods",
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    first, nodes, again, nodes_again, *_ = json_documents(done.stdout)
    binds = first["verbs"]["bind"]
    assert binds["calls"] == len(bound_in(recording))
    assert binds["refused"] == 0
    assert len(first["all"]["replicas"]) == 3
    assert again["disagreements"] == first["disagreements"] == []
    assert held(nodes) == held(nodes_again) == EXPECTED[recording]


def test_pods_loaded_as_facts_hold_what_the_replayed_ones_hold() -> None:
    done = dev(TRAFFIC / "cluster.json", "ae status --json && ae verify")

    assert done.returncode == 0, done.stdout + done.stderr
    assert held(next(json_documents(done.stdout))) == EXPECTED["names.jsonl"]


def test_replay_reports_the_binds_that_a_smaller_node_refuses(tmp_path: Path) -> None:
    cluster = json.loads((TRAFFIC / "cluster.json").read_text())
    node = next(i for i in cluster["items"] if i["metadata"]["name"].startswith("ip-10-0-0-12"))
    assert node["status"]["allocatable"] == {"cpu": "15890m", "memory": "60617Mi", "pods": "110"}
    node["status"]["allocatable"] |= {"cpu": "7945m", "memory": "31036928Ki"}
    smaller = tmp_path / "smaller.json"
    smaller.write_text(json.dumps(cluster))

    done = dev(smaller, f"ae replay {TRAFFIC / 'names.jsonl'}", "--without-pods")

    assert done.returncode == 1
    assert "ip-10-0-0-12" in done.stdout
    assert "bind" in done.stdout


def bound_in(recording: str) -> list[str]:
    lines = map(json.loads, (TRAFFIC / recording).read_text().splitlines())
    return [line["request"]["PodUID"] for line in lines if line["verb"] == "bind"]


def json_documents(text: str) -> Any:
    decoder, at = json.JSONDecoder(), 0
    while at < len(text) and text[at] == "{":
        document, at = decoder.raw_decode(text, at)
        yield document
        while at < len(text) and text[at].isspace():
            at += 1
