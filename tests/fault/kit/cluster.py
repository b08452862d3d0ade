"""The API server as its own users reach it, with no fault between; and what it begins with."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

import aiohttp

from autoscale_enforcer.cluster.kubernetes import config_map
from autoscale_enforcer.model.resources import Resources
from tests.history.clients import NAMESPACE
from tests.history.workload import cluster_objects
from tests.support.fake_api.samples import Json, pod

BEACON = "beacon"
"""A pod whose version tells how far the ledger follows the cluster; it holds next to nothing."""


def with_beacon(objects: Sequence[Json]) -> list[Json]:
    """These, the config that replicas wait for, and the beacon on the last node."""
    config = {
        "kind": "ConfigMap",
        "metadata": {"name": config_map.NAME, "namespace": "kube-system"},
        "data": {config_map.KEYS[0]: json.dumps({"scoring": {}, "schedulerName": "chaos"})},
    }
    last = [each["metadata"]["name"] for each in objects if each["kind"] == "Node"][-1]
    beacon = pod(BEACON, node=last, cpu="1m", memory="1Mi", uid=BEACON, namespace=NAMESPACE)
    return [config, *objects, {"kind": "Pod", **beacon}]


def vms_on(nodes: Mapping[str, Resources], numbers: range) -> list[Json]:
    """A VM pod for each number, spread over the nodes."""
    made = cluster_objects(nodes, clients=numbers.stop)
    return [each for each in made if each["kind"] == "Pod"][numbers.start :]


class ClusterView:
    """Reads the cluster, and touches its beacon."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url, self._http = url, http
        self._pods = f"{url}/api/v1/namespaces/{NAMESPACE}/pods"

    async def touch_beacon(self) -> int:
        """Change something about it that nobody minds; its version then."""
        body = json.dumps({"metadata": {"annotations": {"touched": str(time.time_ns())}}})
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self._http.patch(f"{self._pods}/{BEACON}", data=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return int((await answer.json())["metadata"]["resourceVersion"])

    async def pods(self) -> list[Json]:
        """Every pod there is."""
        async with self._http.get(f"{self.url}/api/v1/pods") as answer:
            found: list[Json] = (await answer.json())["items"]
            return found
