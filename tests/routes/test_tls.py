"""TLS on a port, and who may call it: certificates, names, tokens, files that change."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives import serialization as form

from autoscale_enforcer.api.callers import Reviews, only_known_callers
from autoscale_enforcer.api.door.front_door import FrontDoor
from autoscale_enforcer.api.door.tls import server_tls
from autoscale_enforcer.api.http import application, text_answer
from autoscale_enforcer.config.settings import LimitSettings
from autoscale_enforcer.errors import ClusterUnavailable, ConfigError
from tests.support.replica import until

SOON = timedelta(milliseconds=500)


@dataclass(slots=True)
class Files:
    """Certificate, key and CA as files that can be replaced."""

    folder: Path
    authority: trustme.CA = field(default_factory=trustme.CA)
    clients: trustme.CA = field(default_factory=trustme.CA)
    version: int = 0

    def __post_init__(self) -> None:
        self.renew()

    @property
    def cert(self) -> Path:
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        return self.folder / "tls.key"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    def renew(self) -> None:
        """Another certificate of ours, and the CA of the clients as it is now."""
        made = self.authority.issue_cert("localhost", "127.0.0.1")
        self.put(self.cert, b"".join(blob.bytes() for blob in made.cert_chain_pems))
        self.put(self.key, made.private_key_pem.bytes())
        self.put(self.ca, self.clients.cert_pem.bytes())

    def put(self, file: Path, content: bytes) -> None:
        """Replaced as a whole, as the kubelet does it; later than what was there."""
        self.version += 1
        beside = self.folder / "new"
        beside.write_bytes(content)
        os.utime(beside, ns=(self.version, self.version))
        beside.replace(file)

    def client(self, *names: str, common_name: str = "", of: trustme.CA | None = None) -> Any:
        """The TLS of a client that shows such a certificate; without names none."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if names:
            shown = (of or self.clients).issue_cert(*names, common_name=common_name or None)
            shown.configure_cert(context)
        return context


@dataclass(slots=True)
class Port:
    door: FrontDoor
    number: int
    session: aiohttp.ClientSession

    async def ask(self, tls: ssl.SSLContext, token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"https://localhost:{self.number}/"
        async with self.session.get(url, ssl=tls, headers=headers) as reply:
            return reply.status, await reply.text()

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.number)


OpenPort = Callable[..., Awaitable[Port]]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
async def open_port(files: Files) -> AsyncIterator[OpenPort]:
    async with AsyncExitStack() as stack:

        async def open_one(
            *,
            names: Sequence[str] = (),
            reviews: Reviews | None = None,
            asks: bool = True,
            **limits: Any,
        ) -> Port:
            tls = server_tls(
                files.cert,
                files.key,
                client_ca=files.ca if names and asks else None,
                is_optional=reviews is not None,
            )
            is_open = not names and reviews is None
            checks = [] if is_open else [only_known_callers(names, reviews, within=SOON)]
            app = application("r1", checks=checks)

            async def handle(request: web.Request) -> web.Response:
                return text_answer(200, "ok")

            app.router.add_get("/", handle)
            door = FrontDoor(app, LimitSettings(**limits), tls)
            await door.start()
            stack.push_async_callback(door.close)
            number = await door.listen("127.0.0.1", 0, reuse_port=False)
            connector = aiohttp.TCPConnector(force_close=True)
            session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
            return Port(door, number, session)

        yield open_one


REFUSED = (aiohttp.ClientConnectionError, ssl.SSLError)


async def test_a_port_speaks_tls(open_port: OpenPort, files: Files) -> None:
    port = await open_port()

    assert await port.ask(files.client()) == (200, "ok\n")


async def test_it_speaks_tls_1_2_and_nothing_older(open_port: OpenPort, files: Files) -> None:
    port = await open_port()
    old = files.client()
    old.maximum_version = ssl.TLSVersion.TLSv1_2

    assert (await port.ask(old))[0] == 200
    assert server_tls(files.cert, files.key)().minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 100])
async def test_who_speaks_something_else_is_closed(open_port: OpenPort, sent: bytes) -> None:
    port = await open_port()
    reader, writer = await port.raw()

    writer.write(sent)

    with contextlib.suppress(ConnectionResetError):
        assert b"HTTP" not in await reader.read()
    writer.close()
    await _is_empty(port)


async def _is_empty(port: Port) -> None:
    async def has_nobody() -> bool:
        return port.door.places.taken == 0

    await until(has_nobody)


async def test_who_says_nothing_is_closed_in_time(open_port: OpenPort) -> None:
    port = await open_port(read_timeout=SOON)
    reader, writer = await port.raw()

    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""

    writer.close()
    await _is_empty(port)


async def test_who_says_nothing_has_to_go_for_others(open_port: OpenPort, files: Files) -> None:
    """Handshakes were not counted: they came before there was a connection to count."""
    port = await open_port(connections=3)
    silent = [await port.raw() for _ in range(10)]

    for reader, _ in silent[:7]:
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
    assert port.door.places.taken == 3
    assert await port.ask(files.client()) == (200, "ok\n")
    for _, writer in silent:
        writer.close()


# Certificates of clients


@pytest.mark.parametrize(
    ("names", "common_name"),
    [
        (["scheduler.example"], ""),
        (["other.example", "scheduler.example"], ""),
        (["other.example"], "scheduler.example"),
    ],
    ids=["alternative", "one of two", "common"],
)
async def test_a_certificate_with_an_allowed_name_may_call(
    open_port: OpenPort, files: Files, names: list[str], common_name: str
) -> None:
    port = await open_port(names=["scheduler.example", "x"])

    assert (await port.ask(files.client(*names, common_name=common_name)))[0] == 200


@pytest.mark.parametrize("name", ["other.example", "a.scheduler.example", "scheduler.example.org"])
async def test_a_certificate_with_another_name_may_not(
    open_port: OpenPort, files: Files, name: str
) -> None:
    port = await open_port(names=["scheduler.example"])

    status, text = await port.ask(files.client(name))

    assert status == 403
    assert text == f"certificates of {name} may not call this port\n"


async def test_a_certificate_of_another_ca_ends_the_handshake(
    open_port: OpenPort, files: Files
) -> None:
    port = await open_port(names=["scheduler.example"])

    for shown in (files.client("scheduler.example", of=trustme.CA()), files.client()):
        with pytest.raises(REFUSED):
            await port.ask(shown)

    await _is_empty(port)
    assert port.door._connections == set()  # they stayed there for ever


async def test_a_certificate_that_is_not_asked_for_proves_nothing(
    open_port: OpenPort, files: Files
) -> None:
    port = await open_port(names=["scheduler.example"], asks=False)

    status, text = await port.ask(files.client("scheduler.example"))

    assert (status, text) == (401, "show a client certificate\n")


# Tokens


class Known:
    """Knows the token `good`; has trouble with `trouble`, and never answers to `slow`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def is_allowed(self, token: str, *, caller: str) -> bool:
        self.asked.append((token, caller))
        if token == "slow":
            await asyncio.Event().wait()
        if token == "trouble":
            raise ClusterUnavailable("the API server is away")
        return token == "good"


@pytest.mark.parametrize(
    ("token", "status"), [("good", 200), ("bad", 401), ("trouble", 503), ("slow", 503), ("", 401)]
)
async def test_a_token_may_stand_for_a_certificate(
    open_port: OpenPort, files: Files, token: str, status: int
) -> None:
    reviews = Known()
    port = await open_port(names=["agent.example"], reviews=reviews)

    found, text = await port.ask(files.client(), token)

    assert found == status
    assert reviews.asked == ([(token, "127.0.0.1")] if token else [])
    assert "API server" not in text


async def test_a_certificate_with_an_allowed_name_needs_no_token(
    open_port: OpenPort, files: Files
) -> None:
    reviews = Known()
    port = await open_port(names=["agent.example"], reviews=reviews)

    assert (await port.ask(files.client("agent.example")))[0] == 200
    assert (await port.ask(files.client("other.example")))[0] == 401
    assert (await port.ask(files.client("other.example"), "good"))[0] == 200
    with pytest.raises(REFUSED):
        await port.ask(files.client("agent.example", of=trustme.CA()), "good")


# Files that change


async def test_new_files_count_for_new_connections_and_old_ones_go_on(
    open_port: OpenPort, files: Files
) -> None:
    port = await open_port()
    old = files.client()
    async with aiohttp.ClientSession() as session:
        url = f"https://localhost:{port.number}/"
        async with session.get(url, ssl=old) as reply:
            assert reply.status == 200

        files.authority = trustme.CA()
        files.renew()

        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await port.ask(old)
        assert (await port.ask(files.client()))[0] == 200
        async with session.get(url, ssl=old) as reply:  # over its old connection
            assert reply.status == 200


async def test_a_new_ca_of_clients_counts_too(open_port: OpenPort, files: Files) -> None:
    port = await open_port(names=["scheduler.example"])
    old = files.client("scheduler.example")
    assert (await port.ask(old))[0] == 200

    files.clients = trustme.CA()
    files.renew()

    with pytest.raises(REFUSED):
        await port.ask(old)
    assert (await port.ask(files.client("scheduler.example")))[0] == 200


@pytest.mark.parametrize("content", [b"", b"nonsense"])
async def test_files_that_cannot_be_used_leave_the_old_ones_in_use(
    open_port: OpenPort, files: Files, content: bytes
) -> None:
    port = await open_port()

    files.put(files.cert, content)

    assert (await port.ask(files.client()))[0] == 200


@pytest.mark.parametrize("name", ["cert", "key", "ca"])
@pytest.mark.parametrize("content", [None, b"", b"nonsense"])
def test_files_that_cannot_be_used_at_the_start_are_refused(
    files: Files, name: str, content: bytes | None
) -> None:
    file: Path = getattr(files, name)
    file.unlink()
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ConfigError) as refused:
        server_tls(files.cert, files.key, client_ca=files.ca)

    (problem,) = refused.value.problems
    assert str(file) in problem


def test_a_key_with_a_passphrase_is_refused_and_not_asked_for(files: Files) -> None:
    """OpenSSL asks on the terminal, and a process without one waits for ever."""
    key = form.load_pem_private_key(files.key.read_bytes(), None)
    secret = form.BestAvailableEncryption(b"hush")
    kind = form.PrivateFormat.TraditionalOpenSSL
    files.put(files.key, key.private_bytes(form.Encoding.PEM, kind, secret))

    with pytest.raises(ConfigError):
        server_tls(files.cert, files.key)
