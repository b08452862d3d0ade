"""Opening a cluster, file or API server: its source, its config, and a leader's chores."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from autoscale_enforcer.background import Background
from autoscale_enforcer.cluster import opening
from autoscale_enforcer.cluster.file_source import FileSource
from autoscale_enforcer.cluster.kubernetes import config_map
from autoscale_enforcer.cluster.kubernetes.reconciler import Reconciler
from autoscale_enforcer.cluster.kubernetes.source import KubernetesSource
from autoscale_enforcer.cluster.opening import OpenCluster, open_cluster
from autoscale_enforcer.cluster.upkeep import ListUpkeep
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.config.settings import KubernetesSettings, ReplicaSettings, Settings
from autoscale_enforcer.errors import ConfigError
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.ledger import Ledger
from tests.support.books import settings_at
from tests.support.fake_api.faults import Refuse
from tests.support.fake_api.samples import node, pod
from tests.support.fake_api.server import FakeApi
from tests.support.live import CLUSTER_UID
from tests.support.live import cluster as filled

META = Keys("default").key("meta")
CONFIG = json.dumps({"scoring": {}, "schedulerName": "autoscale-scheduler"})

Open = Callable[..., Awaitable[tuple[OpenCluster, LiveConfig]]]


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as server:
        filled(server)
        named = {"name": config_map.NAME, "namespace": "kube-system"}
        data = {config_map.KEYS[0]: CONFIG}
        server.store.create("configmaps", {"metadata": named, "data": data})
        yield server


@pytest.fixture
async def opened(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """`await opened(replica={...}, kubernetes={...})`: the cluster of these settings."""
    monkeypatch.setattr(opening, "RETRY_AFTER", 0.01)
    monkeypatch.setattr(config_map, "WAIT_FOR_FIRST", 0.5)
    async with AsyncExitStack() as stack:
        ledger = Ledger.open(settings_at(redis_url, cluster="default"))
        stack.push_async_callback(ledger.close)
        background = await stack.enter_async_context(Background())

        async def open_it(
            replica: dict[str, Any], kubernetes: dict[str, Any] | None = None
        ) -> tuple[OpenCluster, LiveConfig]:
            settings = Settings(
                replica=ReplicaSettings(**replica),
                kubernetes=KubernetesSettings(**(kubernetes or {})),
            )
            config = LiveConfig()
            return await open_cluster(stack, background, settings, ledger, config), config

        yield open_it


@pytest.fixture
def live(api: FakeApi, tmp_path: Path) -> dict[str, Any]:
    """Settings that lead to the fake API server."""
    file = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": api.url}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    content = {"clusters": [cluster], "contexts": [context], "current-context": "c"}
    file.write_text(json.dumps({**content, "users": [{"name": "u", "user": {"token": "t"}}]}))
    return {"kubeconfig": file}


def a_file(tmp_path: Path, *objects: Any) -> Path:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": list(objects)}))
    return file


async def test_a_cluster_must_be_named(opened: Open) -> None:
    with pytest.raises(ConfigError, match=r"replica\.cluster: is required"):
        await opened({})


async def test_a_file_is_a_cluster_without_chores(opened: Open, tmp_path: Path) -> None:
    one = {"kind": "Node", "apiVersion": "v1", **node("n1", uid="u", resourceVersion="1")}
    broken = {"kind": "Pod", "apiVersion": "v1", **pod("web", cpu="abc", uid="u2")}

    cluster, _ = await opened({"cluster": f"file:{a_file(tmp_path, one, broken)}"})

    assert isinstance(cluster.source, FileSource)
    assert isinstance(cluster.upkeep, ListUpkeep)
    assert [fact.name for fact in await cluster.source.list_nodes()] == ["n1"]
    assert cluster.chores == ()
    assert not cluster.upkeep.is_due()
    assert cluster.upkeep.readings() == {"repaired_rows": 0}


async def test_a_file_that_cannot_be_used_is_named(opened: Open, tmp_path: Path) -> None:
    nothing, broken = tmp_path / "nothing", tmp_path / "broken"
    broken.write_text("{")

    for file in (nothing, broken):
        with pytest.raises(ConfigError, match=f"replica.cluster: {file}: "):
            await opened({"cluster": f"file:{file}"})


async def test_a_config_file_is_taken(opened: Open, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(CONFIG)
    cluster_file = a_file(tmp_path)

    _, taken = await opened({"cluster": f"file:{cluster_file}", "config": config})

    assert taken.current.scheduler_name == "autoscale-scheduler"
    os.utime(config, (1, 1))
    _, again = await opened({"cluster": f"file:{cluster_file}", "config": config})
    assert taken.version == again.version
    config.write_text(CONFIG + " ")
    _, other = await opened({"cluster": f"file:{cluster_file}", "config": config})
    assert other.version != taken.version
    assert not any(each.version.isdigit() for each in (taken, other))


async def test_a_config_file_that_cannot_be_used_is_named(opened: Open, tmp_path: Path) -> None:
    bad, cluster = tmp_path / "bad.json", f"file:{a_file(tmp_path)}"
    bad.write_text('{"scoring": {}, "watermark": 7}')

    with pytest.raises(ConfigError, match=f"config: {bad}: .*watermark"):
        await opened({"cluster": cluster, "config": bad})
    with pytest.raises(ConfigError, match=r"config: .*nothing: "):
        await opened({"cluster": cluster, "config": tmp_path / "nothing"})


async def test_an_api_server_is_a_cluster(
    opened: Open, live: dict[str, Any], raw_client: redis.asyncio.Redis
) -> None:
    cluster, config = await opened({"cluster": "kubernetes"}, live)

    assert isinstance(cluster.source, KubernetesSource)
    assert isinstance(cluster.upkeep, Reconciler)
    assert config.current.scheduler_name == "autoscale-scheduler"
    assert await raw_client.hget(META, "cluster") == CLUSTER_UID.encode()
    assert cluster.bind_budget == KubernetesSettings().bind_budget
    assert [chore.name for chore in cluster.chores] == ["keep config"]


async def test_a_pod_that_knows_its_name_rings_and_labels(
    opened: Open, live: dict[str, Any], api: FakeApi
) -> None:
    selector = {"app.kubernetes.io/name": "autoscale-enforcer"}
    own = pod("r1", namespace="kube-system", labels=selector)
    own["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    api.store.create("pods", own)

    cluster, _ = await opened({"cluster": "kubernetes"}, {**live, "pod_name": "r1"})
    chores = {chore.name: chore.do for chore in cluster.chores}
    await chores["agents label"]()

    assert set(chores) == {"keep config", "room", "agents label"}
    labels = api.store.get("pods", "kube-system/r1")["metadata"]["labels"]
    assert labels["name"] == "autoscale-scheduler"


async def test_no_pod_is_labelled_where_the_config_names_no_scheduler(
    opened: Open, live: dict[str, Any], api: FakeApi, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"scoring": {}}')

    cluster, _ = await opened(
        {"cluster": "kubernetes", "config": config}, {**live, "pod_name": "r1"}
    )
    chores = {chore.name: chore.do for chore in cluster.chores}
    await chores["agents label"]()

    assert set(chores) == {"room", "agents label"}  # a file needs nobody to keep it
    assert api.requests("list", "pods") == []


async def test_another_clusters_ledger_is_refused(
    opened: Open, live: dict[str, Any], raw_client: redis.asyncio.Redis
) -> None:
    await raw_client.hset(META, "cluster", "another")

    with pytest.raises(ConfigError, match="the ledger is that of the cluster another, this one is"):
        await opened({"cluster": "kubernetes"}, live)


async def test_an_api_server_that_is_away_is_waited_for(
    opened: Open, live: dict[str, Any], api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    api.next("get", "namespaces", Refuse(503), Refuse(503))

    cluster, _ = await opened({"cluster": "kubernetes"}, live)

    assert isinstance(cluster.source, KubernetesSource)
    assert len(api.requests("get", "namespaces")) == 3
    assert "waiting: get namespaces: 503" in caplog.text


async def test_a_cluster_without_a_config_ends(
    opened: Open, live: dict[str, Any], api: FakeApi
) -> None:
    api.store.remove("configmaps", f"kube-system/{config_map.NAME}")

    with pytest.raises(ConfigError, match="has not come"):
        await opened({"cluster": "kubernetes"}, live)
