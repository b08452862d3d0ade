"""The cluster file that is made from the Nodes a recording carries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoscale_enforcer.replay.cluster_file import cluster_file
from autoscale_enforcer.replay.recording import RecordingError, read_calls

TRAFFIC = Path(__file__).parents[2] / "data" / "traffic"
POD = {"metadata": {"name": "web"}}


def node(name: str, cpu: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu}}}


def filtered(*nodes: dict[str, Any]) -> str:
    request = {"Pod": POD, "Nodes": {"metadata": {}, "items": nodes}}
    return json.dumps({"t": 0, "verb": "filter", "request": request}) + "\n"


def test_cluster_file_holds_the_last_version_of_each_node(tmp_path: Path) -> None:
    recording = tmp_path / "two.jsonl"
    recording.write_text(filtered(node("n2", "1"), node("n1", "1")) + filtered(node("n2", "2")))

    document = json.loads(cluster_file(read_calls(recording)))

    assert document == {
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": ""},
        "items": [
            {"apiVersion": "v1", "kind": "Node", **node("n1", "1")},
            {"apiVersion": "v1", "kind": "Node", **node("n2", "2")},
        ],
    }


def test_cluster_file_of_the_recorded_nodes_has_all_six() -> None:
    document = json.loads(cluster_file(read_calls(TRAFFIC / "nodes.jsonl")))

    assert [item["metadata"]["name"] for item in document["items"]] == [
        f"ip-10-0-0-{number}.eu-central-1.compute.internal" for number in range(4, 10)
    ]
    assert all(item["status"]["allocatable"] for item in document["items"])


def test_cluster_file_refuses_a_recording_of_names() -> None:
    with pytest.raises(RecordingError, match="only their names"):
        cluster_file(read_calls(TRAFFIC / "names.jsonl"))
