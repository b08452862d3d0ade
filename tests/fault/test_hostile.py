"""Hostile callers in processes of their own beside a client that means well.

`slow` holds as many connections as it can and sends a byte a second; the others call again and
again with what must be refused. Judged are ratios, in rounds with and without the attack that
follow each other, for the machine may have other work too.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import trustme

from tests.conftest import StartServer
from tests.support.fake_api.server import FakeApi
from tests.support.kubeconfig import kubeconfig_of
from tests.support.live import with_config
from tests.support.serving import Served, serving
from tests.support.tokens import RESOURCE, Reviewer, token_of

pytestmark = [pytest.mark.scale, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
LIMIT = 1000
SLOW_ONES = 10_000
ROUNDS = 7
ROUND_SECONDS = 1.0
TRIES = 3
"""Measurements before a ratio counts: other work on the machine can make it larger, not smaller."""
LISTENING = "0A"
"""State of a socket in the kernel's list."""
MORE_MEMORY = 64 << 20
AGENT = "neonvm-system/agent"
FILTER = {
    "Pod": {
        "metadata": {"name": "p", "namespace": "d", "uid": "u1"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
    },
    "NodeNames": ["n1"],
}


@dataclass(slots=True)
class Victim:
    """The replica, and who means well."""

    replica: Served
    http: aiohttp.ClientSession
    scheme: str = "http"

    def url(self, door: str) -> str:
        url: str = getattr(self.replica, door)
        return url.replace("http:", f"{self.scheme}:").replace("127.0.0.1", "localhost")

    def port(self, door: str) -> int:
        return int(getattr(self.replica, door).split(":")[2].partition("/")[0])

    @property
    def memory(self) -> int:
        """Bytes that are resident."""
        pages = Path(f"/proc/{self.replica.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def connections(self, door: str) -> int:
        """That the process holds at that port; the kernel's queue belongs to nobody yet."""
        pid, port = self.replica.process.pid, self.port(door)
        rows = [row.split() for row in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
        there = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{port:04X}")}
        there -= {f"socket:[{row[9]}]" for row in rows if row[3] == LISTENING}
        held = [file.readlink() for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()]
        return sum(str(link) in there for link in held)

    async def p99(self) -> float:
        """Of a round of filters over connections that stay, and over new ones in between."""
        took: list[float] = []
        end = time.monotonic() + ROUND_SECONDS
        while time.monotonic() < end:
            headers = {"Connection": "close"} if len(took) % 10 == 9 else {}
            began = time.monotonic()
            url = f"{self.url('extender')}/filter"
            async with self.http.post(url, json=FILTER, headers=headers) as answer:
                assert answer.status == 200
                await answer.read()
            took.append(time.monotonic() - began)
            await asyncio.sleep(0.005)
        return sorted(took)[int(len(took) * 0.99)]


@dataclass(slots=True)
class Attack:
    """A caller that means ill, and may be told to rest."""

    process: asyncio.subprocess.Process

    async def said(self) -> dict[str, int]:
        assert self.process.stdout is not None
        told: dict[str, int] = json.loads(await self.process.stdout.readline())
        return told

    def rests(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def goes_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def ends(self) -> dict[str, int]:
        """What it says at its end."""
        self.goes_on()
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.said()


@asynccontextmanager
async def attacking(kind: str, port: int, count: int, **environment: str) -> AsyncIterator[Attack]:
    command = [sys.executable, "-m", "tests.support.attacker", kind, str(port), str(count)]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
    )
    try:
        yield Attack(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def slower(victim: Victim, attack: Attack) -> float:
    """How many times longer the client's p99 is while the attack goes on."""
    found = []
    for _ in range(TRIES):
        calm, attacked = [], []
        for _ in range(ROUNDS):
            attack.rests()
            calm.append(await victim.p99())
            attack.goes_on()
            attacked.append(await victim.p99())
        found.append(statistics.median(attacked) / statistics.median(calm))
        if found[-1] < 2:
            break
    return min(found)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def victim(start_server: StartServer, http: aiohttp.ClientSession) -> AsyncIterator[Victim]:
    """Over plain HTTP."""
    cluster = f"file:{ROOT / 'deploy' / 'sample' / 'cluster.json'}"
    async with serving(start_server("valkey").url, cluster, replicas=1) as (replica,):
        yield Victim(replica, http)


Record = Callable[[str, object], None]


@pytest.mark.parametrize("door", ["extender", "agent"])
async def test_ten_thousand_slow_connections_starve_nobody(
    victim: Victim, door: str, record_property: Record
) -> None:
    await victim.p99()
    before = victim.memory

    async with attacking("slow", victim.port(door), SLOW_ONES) as attack:
        told = await attack.said()
        held = victim.connections(door)
        ratio = await slower(victim, attack)
        grown = victim.memory - before
        await attack.ends()

    record_property("printed", f"{told}, {held} held; p99 x {ratio:.2f}, {grown >> 20} MiB more")
    assert told["opened"] == SLOW_ONES
    assert told["closed"] >= SLOW_ONES - LIMIT
    assert 0 < held <= LIMIT
    assert ratio < 2
    assert grown < MORE_MEMORY


@dataclass(slots=True)
class Guarded:
    """A replica that asks everybody who they are."""

    victim: Victim
    ca: Path
    wrong: Path
    """A client's certificate and key, of a CA that nobody knows."""


@pytest.fixture
async def guarded(
    start_server: StartServer, api: FakeApi, tmp_path: Path
) -> AsyncIterator[Guarded]:
    ours, theirs = trustme.CA(), trustme.CA()
    good = ours.issue_cert("scheduler.example")
    made = ours.issue_cert("localhost")
    files = {
        "tls.crt": made.cert_chain_pems[0].bytes(),
        "tls.key": made.private_key_pem.bytes(),
        "ca.crt": ours.cert_pem.bytes(),
        "token": b"hush",
        "wrong.pem": theirs.issue_cert("scheduler.example").private_key_and_cert_chain_pem.bytes(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with_config(api)
    api.always("create", RESOURCE, Reviewer({token_of(AGENT): AGENT}))
    flags = [f"--kubeconfig={kubeconfig_of(api.url, tmp_path)}", "--settle-after=0s"]
    flags += [f"--tls-cert-file={tmp_path / 'tls.crt'}", f"--tls-key-file={tmp_path / 'tls.key'}"]
    flags += [f"--client-ca-file={tmp_path / 'ca.crt'}", "--tls-ports=extender,agent,admin"]
    flags += ["--extender-client-names=scheduler.example", f"--agent-accounts={AGENT}"]
    flags += [f"--admin-token-file={tmp_path / 'token'}"]
    context = ours_of(ours)
    good.configure_cert(context)
    connector = aiohttp.TCPConnector(ssl=context)
    async with (
        serving(start_server("valkey").url, "kubernetes", *flags, replicas=1) as (replica,),
        aiohttp.ClientSession(connector=connector) as http,
    ):
        victim = Victim(replica, http, scheme="https")
        yield Guarded(victim, tmp_path / "ca.crt", tmp_path / "wrong.pem")


def ours_of(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


FORGED = token_of(AGENT, salt="forged")
ASK = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nAuthorization: Bearer {}\r\n\r\n{{}}"
CHANGE = (
    "POST /api/v1/freeze HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
    "Authorization: Bearer wrong\r\n\r\n{}"
)
BIND = "POST /extender/bind HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    ("door", "sent", "shows"),
    [
        ("extender", BIND, True),
        ("extender", BIND, False),
        ("agent", ASK.format("nonsense"), False),
        ("agent", ASK.format(FORGED), False),
        ("agent", ASK.format(token_of("other/account")), False),
        ("admin", CHANGE, False),
    ],
    ids=["certificate", "no certificate", "no token", "forged", "other account", "admin token"],
)
async def test_who_may_not_call_is_refused_and_starves_nobody(
    guarded: Guarded, door: str, sent: str, shows: bool, record_property: Record
) -> None:
    victim = guarded.victim
    await victim.p99()
    before = victim.memory
    environment = {"SENT": sent, "CA": str(guarded.ca), "A_SECOND": "100"}
    environment |= {"CERT": str(guarded.wrong)} if shows else {}

    async with attacking("flood", victim.port(door), 200, **environment) as attack:
        await attack.said()
        ratio = await slower(victim, attack)
        grown = victim.memory - before
        told = await attack.ends()

    record_property("printed", f"{told}; p99 x {ratio:.2f}, {grown >> 20} MiB more")
    assert told["let_in"] == told["broken"] == 0
    assert told["refused"] >= 200
    assert ratio < 2
    assert grown < MORE_MEMORY
