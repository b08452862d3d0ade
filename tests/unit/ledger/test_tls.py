"""TLS to real servers: what is verified, and that files are read anew. Debian's redis-server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from typing_extensions import override

from autoscale_enforcer.errors import ConfigError, LedgerUnavailable
from autoscale_enforcer.ledger.connection import ConnectionSettings, connector
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.ids import NodeName, PodUid
from tests.support.books import settings_at
from tests.support.servers import Server

N1 = NodeName("n1")

pytestmark = pytest.mark.long


class TlsServer(Server):
    """Speaks TLS alone on `port`, and plain on its socket; wants a client's certificate."""

    def __init__(self, files: Path, *more: str, is_sentinel: bool = False) -> None:
        super().__init__("redis", tcp=True)
        self._is_sentinel = is_sentinel
        tls = ["--tls-port", str(self.port), "--tls-replication", "yes"]
        for option, name in (("cert-file", "cert"), ("key-file", "key"), ("ca-cert-file", "ca")):
            tls += [f"--tls-{option}", str(files / name)]
        self.args = (*tls, *more)

    @override
    def _settings(self) -> list[str]:
        plain = super()._settings()
        plain[1] = "0"  # the port without TLS
        if not self._is_sentinel:
            return plain
        config = self.folder / "sentinel.conf"
        config.touch()
        return [str(config), "--sentinel", *plain[:8]]


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Path:
    """The CA's certificate, and one with its key for 127.0.0.1."""
    issue(tmp_path, authority, "127.0.0.1")
    return tmp_path


def issue(folder: Path, authority: trustme.CA, name: str) -> None:
    authority.cert_pem.write_to_path(folder / "ca")
    certificate = authority.issue_cert(name)
    certificate.private_key_pem.write_to_path(folder / "key")
    (folder / "cert").write_bytes(b"".join(c.bytes() for c in certificate.cert_chain_pems))


@pytest.fixture
def server(files: Path) -> Iterator[TlsServer]:
    with TlsServer(files) as server:
        yield server


def opened(url: str, files: Path, **more: Any) -> Ledger:
    given: dict[str, Any] = {
        "ca_file": files / "ca",
        "cert_file": files / "cert",
        "key_file": files / "key",
    }
    settings = settings_at(url)
    connection = replace(settings.connection, **(given | more))
    return Ledger.open(replace(settings, connection=connection))


async def answers(ledger: Ledger) -> bool:
    try:
        return await ledger.note_binding(PodUid("u1"), node=N1) == N1
    except LedgerUnavailable:
        return False


async def asked(ledger: Ledger) -> bool:
    try:
        return await answers(ledger)
    finally:
        await ledger.close()


async def test_redis_is_reached_over_tls(server: TlsServer, files: Path) -> None:
    assert await asked(opened(f"rediss://127.0.0.1:{server.port}", files))


async def test_server_of_another_authority_is_refused(
    server: TlsServer, files: Path, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other")

    assert not await asked(
        opened(f"rediss://127.0.0.1:{server.port}", files, ca_file=tmp_path / "other")
    )


async def test_server_is_refused_that_only_the_system_could_know(
    server: TlsServer, files: Path
) -> None:
    assert not await asked(opened(f"rediss://127.0.0.1:{server.port}", files, ca_file=None))


async def test_certificate_of_another_host_is_refused(server: TlsServer, files: Path) -> None:
    assert not await asked(opened(f"rediss://localhost:{server.port}", files))


async def test_redis_refuses_us_without_our_certificate(server: TlsServer, files: Path) -> None:
    assert not await asked(
        opened(f"rediss://127.0.0.1:{server.port}", files, cert_file=None, key_file=None)
    )


async def test_sentinels_and_redis_are_reached_over_tls(server: TlsServer, files: Path) -> None:
    with ExitStack() as stack:
        sentinel = stack.enter_context(TlsServer(files, is_sentinel=True))
        with sentinel.client() as client:
            client.execute_command("SENTINEL", "MONITOR", "main", "127.0.0.1", server.port, "1")

        ledger = opened(f"rediss+sentinel://127.0.0.1:{sentinel.port}/main", files)

        assert await asked(ledger)


async def test_cluster_is_reached_over_tls(files: Path) -> None:
    with TlsServer(files, "--cluster-enabled", "yes", "--tls-cluster", "yes") as server:
        with server.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            while b"cluster_state:ok" not in client.eval("return redis.call('CLUSTER', 'INFO')", 0):
                pass

        assert await asked(opened(f"rediss+cluster://127.0.0.1:{server.port}", files))


async def test_files_that_were_replaced_are_used_by_the_next_connection(
    server: TlsServer, files: Path
) -> None:
    ledger = opened(f"rediss://127.0.0.1:{server.port}", files)
    assert await answers(ledger)
    issue(files, trustme.CA(), "127.0.0.1")
    with server.client() as client:
        client.execute_command(
            *("CONFIG", "SET", "tls-cert-file", str(files / "cert")),
            *("tls-key-file", str(files / "key"), "tls-ca-cert-file", str(files / "ca")),
        )
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    assert await answers(ledger)
    await ledger.close()


async def test_files_that_cannot_be_used_are_refused_at_once(files: Path) -> None:
    (files / "cert").write_text("no certificate")
    settings = ConnectionSettings(
        url="rediss://h", cert_file=files / "cert", key_file=files / "key"
    )

    with pytest.raises(ConfigError, match="redis TLS files"):
        connector(settings, slot_key="k")


async def test_files_that_are_bad_for_a_while_leave_the_old_ones(
    server: TlsServer, files: Path
) -> None:
    ledger = opened(f"rediss://127.0.0.1:{server.port}", files)
    assert await answers(ledger)
    (files / "ca").write_text("half of a")
    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    assert await answers(ledger)
    await ledger.close()
