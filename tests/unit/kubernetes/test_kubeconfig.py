from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
import yaml
from tests.support.fake_api.server import FakeApi
from tests.support.fake_api.tls import KUBE_SYSTEM, cluster_uid, server_context

from autoscale_enforcer.cluster.kubernetes.access import find_access
from autoscale_enforcer.errors import ConfigError

# The first of them imports kubernetes_asyncio.


def kubeconfig(path: Path, user: Mapping[str, object], **clusters: Mapping[str, object]) -> str:
    """A file with a context for each cluster; the first is the current one."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": next(iter(clusters)),
        "clusters": [{"name": name, "cluster": dict(each)} for name, each in clusters.items()],
        "users": [{"name": "me", "user": dict(user)}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": "me"}} for name in clusters
        ],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


async def test_kubeconfig_gives_server_authority_and_token(
    authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    async with FakeApi(tls=server_context(authority)) as api:
        api.store.create("namespaces", KUBE_SYSTEM)
        api.tokens = {"from-file"}
        named = kubeconfig(
            tmp_path / "config",
            {"token": "from-file"},
            there={"server": api.url, "certificate-authority": "ca.crt"},
        )

        access = await find_access({"KUBECONFIG": named})

        assert await cluster_uid(access) == "cluster-1"


async def test_kubeconfig_context_can_be_chosen(tmp_path: Path) -> None:
    named = kubeconfig(
        tmp_path / "config", {}, a={"server": "http://a:1"}, b={"server": "http://b:2/"}
    )

    current = await find_access({}, kubeconfig=named)
    chosen = await find_access({"KUBECONFIG": "elsewhere"}, kubeconfig=named, context="b")

    assert (current.server, chosen.server) == ("http://a:1", "http://b:2")


async def test_kubeconfig_client_certificate_speaks_for_us(
    authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    mine = authority.issue_cert("me@example.org")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "me.crt")
    mine.private_key_pem.write_to_path(tmp_path / "me.key")
    async with FakeApi(tls=server_context(authority, asks_for_certificate=True)) as api:
        api.store.create("namespaces", KUBE_SYSTEM)
        named = kubeconfig(
            tmp_path / "config",
            {"client-certificate": "me.crt", "client-key": "me.key"},
            there={"server": api.url, "certificate-authority": "ca.crt"},
        )

        access = await find_access({}, kubeconfig=named)

        assert await cluster_uid(access) == "cluster-1"
        assert "Authorization" not in api.seen[0].headers


async def test_files_that_a_kubeconfig_names_are_read_anew_when_they_change(
    authority: trustme.CA, tmp_path: Path
) -> None:
    """A rotated authority, or a renewed certificate of ours, wanted a restart."""

    def write(ca: trustme.CA) -> None:
        ca.cert_pem.write_to_path(tmp_path / "ca.crt")
        mine = ca.issue_cert("me@example.org")
        mine.cert_chain_pems[0].write_to_path(tmp_path / "me.crt")
        mine.private_key_pem.write_to_path(tmp_path / "me.key")

    write(authority)
    named = kubeconfig(
        tmp_path / "config",
        {"client-certificate": "me.crt", "client-key": "me.key"},
        there={"server": "https://127.0.0.1:1", "certificate-authority": "ca.crt"},
    )
    access = await find_access({}, kubeconfig=named)
    successor = trustme.CA()

    write(successor)

    async with FakeApi(tls=server_context(successor, asks_for_certificate=True)) as api:
        api.store.create("namespaces", KUBE_SYSTEM)
        assert await cluster_uid(replace(access, server=api.url)) == "cluster-1"


async def test_kubeconfig_exec_plugin_is_run_again_when_its_token_is_refused(
    tmp_path: Path,
) -> None:
    plugin, count = tmp_path / "plugin", tmp_path / "count"
    plugin.write_text(
        f'#!/bin/sh\necho x >> {count}\nn=$(wc -l < {count})\necho "{{'
        r"\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", "
        r'\"status\": {\"token\": \"token-$((n))\"}}"'
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "args": [],
        }
    }
    async with FakeApi() as api:
        api.store.create("namespaces", KUBE_SYSTEM)
        api.tokens = {"token-2"}
        named = kubeconfig(tmp_path / "config", user, there={"server": api.url})

        access = await find_access({}, kubeconfig=named)

        assert await cluster_uid(access) == "cluster-1"
    sent = [each.headers["Authorization"] for each in api.seen]
    assert sent == ["Bearer token-1", "Bearer token-2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "", id="empty"),
        pytest.param("{", "", id="no YAML"),
        pytest.param("[]", "", id="a list"),
        pytest.param("current-context: a\ncontexts: []\nclusters: []\n", "a", id="no context"),
    ],
)
async def test_kubeconfig_that_cannot_be_used_is_named(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(ConfigError, match=f"{path}: cannot be used as kubeconfig: .*{words}"):
        await find_access({}, kubeconfig=str(path))
