"""A cluster file made from a recording: the Node objects that travelled in its requests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from autoscale_enforcer.replay.asked import NodesAsked
from autoscale_enforcer.replay.recording import Call, RecordingError


def cluster_file(calls: Iterable[Call]) -> str:
    """A `v1` List of the nodes, as `kubectl get nodes -o json` prints it.

    Of each node the last version that the recording carries. Raises RecordingError where no
    request carries nodes: a scheduler set to `nodeCacheCapable: true` sends their names only.
    """
    newest = _newest_nodes(calls)
    if not newest:
        raise RecordingError(
            "no request of this recording carries Node objects, only their names "
            "(recorded with nodeCacheCapable: true), so no cluster file can be made from it"
        )
    document = {
        "apiVersion": "v1",
        "items": [_with_kind(newest[name]) for name in sorted(newest)],
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    }
    return json.dumps(document, indent=4)


def _newest_nodes(calls: Iterable[Call]) -> dict[str, bytes]:
    newest: dict[str, bytes] = {}
    for call in calls:
        if isinstance(call.asked, NodesAsked) and call.asked.nodes is not None:
            newest.update(call.asked.nodes)
    return newest


def _with_kind(raw: bytes) -> dict[str, Any]:
    # Inside a NodeList the scheduler leaves out what kubectl prints on each item.
    node: dict[str, Any] = json.loads(raw)
    return {"apiVersion": "v1", "kind": "Node"} | node
