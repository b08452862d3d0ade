from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from tests.support.fake_api.server import FakeApi
from tests.support.fake_api.tls import KUBE_SYSTEM, cluster_uid, server_context

from autoscale_enforcer.cluster.kubernetes import paths
from autoscale_enforcer.cluster.kubernetes.access import (
    REREAD_AFTER,
    Access,
    TokenFile,
    find_access,
    in_cluster,
)
from autoscale_enforcer.cluster.kubernetes.answers import BareObject
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.errors import ClusterUnavailable, ConfigError


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def service_account(tmp_path: Path, authority: trustme.CA) -> Path:
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("first\n")
    return tmp_path


def environment(api: FakeApi) -> dict[str, str]:
    host, _, port = api.url.removeprefix("https://").partition(":")
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


async def test_pod_speaks_with_the_api_server_by_its_service_account(
    authority: trustme.CA, service_account: Path
) -> None:
    async with FakeApi(tls=server_context(authority)) as api:
        api.store.create("namespaces", KUBE_SYSTEM)
        api.tokens = {"first"}

        access = in_cluster(environment(api), folder=service_account)

        assert access is not None
        assert await cluster_uid(access) == "cluster-1"


async def test_api_server_with_a_certificate_of_another_authority_is_refused(
    service_account: Path,
) -> None:
    async with FakeApi(tls=server_context(trustme.CA())) as api:
        access = in_cluster(environment(api), folder=service_account)

        assert access is not None
        with pytest.raises(ClusterUnavailable, match="certificate"):
            await cluster_uid(access)


async def test_authority_that_is_replaced_is_trusted_without_a_restart(
    authority: trustme.CA, service_account: Path
) -> None:
    """The file was read once: after a rotation every new connection failed."""
    context = server_context(authority)
    async with FakeApi(tls=context) as api:
        api.store.create("namespaces", KUBE_SYSTEM)
        api.tokens = {"first"}
        access = in_cluster(environment(api), folder=service_account)
        assert access is not None
        uids = [await cluster_uid(access)]
        successor = trustme.CA()
        successor.issue_cert("127.0.0.1").configure_cert(context)
        successor.cert_pem.write_to_path(service_account / "ca.crt")
        uids.append(await cluster_uid(access))
        (service_account / "ca.crt").write_text("half a certif")
        uids.append(await cluster_uid(access))

    assert uids == ["cluster-1"] * 3  # each over a connection of its own


async def test_authority_that_was_replaced_is_trusted_no_longer(
    authority: trustme.CA, service_account: Path
) -> None:
    """Not even over a connection that is open still."""
    async with FakeApi(tls=server_context(authority)) as api:
        api.store.create("namespaces", KUBE_SYSTEM)
        api.tokens = {"first"}
        access = in_cluster(environment(api), folder=service_account)
        assert access is not None
        async with KubeApi(access) as client:
            path = paths.namespace_path("kube-system")
            await client.get(path, BareObject)
            trustme.CA().cert_pem.write_to_path(service_account / "ca.crt")
            with pytest.raises(ClusterUnavailable, match="certificate"):
                await client.get(path, BareObject)


def test_address_of_ip_version_6_is_put_into_brackets(service_account: Path) -> None:
    where = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}

    access = in_cluster(where, folder=service_account)

    assert access is not None
    assert access.server == "https://[fd00::1]:443"


@pytest.mark.parametrize("missing", ["ca.crt", "token"])
def test_pod_without_a_service_account_file_is_told_which(
    service_account: Path, missing: str
) -> None:
    (service_account / missing).unlink()
    where = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}

    with pytest.raises(ConfigError, match=missing):
        in_cluster(where, folder=service_account)


async def test_token_is_read_again_after_a_minute_and_not_before(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "token"
    path.write_text("first")
    token = TokenFile(path, clock=clock)
    given = [await token.authorization()]

    path.write_text("second\n")
    for clock.now in (REREAD_AFTER - 1, REREAD_AFTER):
        given.append(await token.authorization())

    assert given == ["Bearer first", "Bearer first", "Bearer second"]


async def test_token_whose_file_is_gone_is_used_on(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "token"
    path.write_text("first")
    token = TokenFile(path, clock=clock)
    await token.authorization()

    path.unlink()
    clock.now = 1000

    assert await token.authorization() == "Bearer first"


async def test_token_that_was_never_there_makes_the_cluster_unavailable(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnavailable, match="no token"):
        await TokenFile(tmp_path / "token").authorization()


async def test_token_that_is_refused_is_read_again_at_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    credentials = TokenFile(path)
    async with FakeApi() as api:
        api.store.create("namespaces", KUBE_SYSTEM)
        api.tokens = {"first"}
        async with KubeApi(Access(server=api.url, credentials=credentials)) as client:
            await client.get(paths.namespace_path("kube-system"), BareObject)
            api.tokens = {"second"}
            path.write_text("second")
            found = await client.get(paths.namespace_path("kube-system"), BareObject)
            reply = await client.post(
                "/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}}
            )

    assert found is not None
    assert reply.ok
    sent = [each.headers.get("Authorization") for each in api.seen]
    assert sent == ["Bearer first", "Bearer first", "Bearer second", "Bearer second"]


async def test_token_that_stays_refused_is_tried_once_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret-token")
    async with FakeApi() as api:
        api.tokens = {"other"}
        access = Access(server=api.url, credentials=TokenFile(path))
        with pytest.raises(ClusterUnavailable) as caught:
            await cluster_uid(access)

    assert str(caught.value) == "get namespaces: 401 Unauthorized: Unauthorized"
    assert len(api.seen) == 1
    assert "secret-token" not in repr(access)


async def test_no_way_to_a_cluster_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    with pytest.raises(ConfigError, match="not in a pod, and no kubeconfig file"):
        await find_access({})


def test_in_a_pod_kubernetes_asyncio_is_never_imported(service_account: Path) -> None:
    """It doubles the memory of a replica and may take seconds, at every start."""
    program = f"""
import asyncio, sys, time
began = time.process_time()
import autoscale_enforcer.cluster.kubernetes.reflector
from autoscale_enforcer.cluster.kubernetes import access
access.in_cluster.__kwdefaults__["folder"] = access.Path({str(service_account)!r})
where = {{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}}
print(asyncio.run(access.find_access(where)).server)
print(sorted(name for name in sys.modules if name.startswith("kubernetes")))
print(time.process_time() - began)
"""

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    server, heavy, seconds = done.stdout.splitlines()
    assert (server, heavy) == ("https://10.0.0.1:443", "[]")
    assert float(seconds) < 2  # 0.2 where all is compiled
