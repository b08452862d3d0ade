"""Many clients at three replicas at once, on nodes that hold a third of what they want."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from autoscale_enforcer.ledger.journal import JournalEntry
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.reading import read_books
from autoscale_enforcer.ledger.verify import Books, breaches
from autoscale_enforcer.model.ids import PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.objects.quantity import cpu_milli, mem_bytes
from tests.reference.history import replay
from tests.support.books import settings_at
from tests.support.servers import Server, async_client
from tests.support.serving import Served, serving

CLIENTS = 64
NODES = [f"n{number}" for number in range(8)]
NODE = {"cpu": "4", "memory": "16Gi"}
GIB = 1 << 30
PODS_EACH = 4
UNIT = {"vCPUs": "250m", "mem": "1Gi"}


def vm_pod(number: int) -> dict[str, Any]:
    """A bound VM pod that holds 250m and 1Gi, and may grow to eight times that."""
    size = {
        "cpus": {"min": "250m", "use": "250m", "max": "2"},
        "memorySlots": {"min": 1, "use": 1, "max": 8},
        "memorySlotSize": "1Gi",
    }
    owner = {"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "name": f"vm-{number}"}
    metadata = {
        "name": f"vm-{number}",
        "namespace": "race",
        "uid": f"vm-uid-{number}",
        "resourceVersion": str(100 + number),
        "labels": {"autoscaling.neon.tech/enabled": "true"},
        "annotations": {"vm.neon.tech/resources": json.dumps(size)},
        "ownerReferences": [owner],
    }
    spec = {"nodeName": NODES[number % len(NODES)], "containers": [{"name": "c"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def cluster_file(folder: Path) -> Path:
    """The nodes, and a VM for each client."""
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"},
            "status": {"allocatable": NODE},
        }
        for name in NODES
    ]
    items = [*nodes, *map(vm_pod, range(CLIENTS))]
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


@dataclass(slots=True)
class Known:
    """What its client last heard of a pod."""

    node: str | None = None
    stage: str = "pending"
    amount: Resources = field(default_factory=Resources)
    refused: list[Resources] = field(default_factory=list)
    """What newer versions of the pod asked for in vain: a replica that heard of one binds that."""

    @property
    def amounts(self) -> list[Resources]:
        """What the books may say that it holds."""
        return [self.amount, *(self.refused if self.stage == "bound" else ())]


class Client:
    """Owns pods and a VM, does one thing at a time, and sends it to two or three replicas."""

    def __init__(
        self, number: int, replicas: Sequence[Served], http: aiohttp.ClientSession
    ) -> None:
        self.random = random.Random(number)
        self.replicas, self.http, self.number = replicas, http, number
        self.pods = {f"pod-{number}-{i}": Known() for i in range(PODS_EACH)}
        self.vm = Known(NODES[number % len(NODES)], "bound", Resources(250, GIB))
        self.version = 1000
        self.unexpected: list[str] = []

    async def act(self) -> None:
        """One random call."""
        name = self.random.choice(list(self.pods))
        node = self.random.choice(NODES)
        act = self.random.choices([self.reserve, self.unreserve, self.bind], weights=[60, 25, 2])[0]
        if self.random.random() < 0.35:
            await self.request()
        else:
            await act(name, node)

    async def reserve(self, name: str, node: str) -> None:
        """Ask for room of a new size."""
        self.version += 1
        want = Resources(self.random.randint(1, 8) * 125, self.random.randint(1, 8) * GIB // 2)
        answers = await self.send("reserve", {"Pod": self.pod(name, want), "NodeName": node})
        pod = self.pods[name]
        if pod.stage == "bound":
            return
        if any(answer["Code"] == "Success" for answer in answers):
            self.pods[name] = Known(node, "held", want)
        else:
            pod.refused.append(want)

    async def unreserve(self, name: str, node: str) -> None:
        """Release, mostly where it is held."""
        pod = self.pods[name]
        if pod.node and self.random.random() < 0.8:
            node = pod.node
        answers = await self.send("unreserve", {"Pod": self.reference(name), "NodeName": node})
        if any(answer["Code"] != "Success" for answer in answers):
            self.unexpected.append(f"unreserve {name}: {answers}")
        if pod.stage == "held" and pod.node == node:
            self.pods[name] = Known(None, "pending", pod.amount, pod.refused)

    async def bind(self, name: str, node: str) -> None:
        """Bind, mostly where it is held; a pod that was never reserved is nobody's to bind."""
        pod = self.pods[name]
        if pod.amount == Resources():
            return
        if pod.node and self.random.random() < 0.8:
            node = pod.node
        space, uid = "race", f"uid-{name}"
        body = {"PodName": name, "PodNamespace": space, "PodUID": uid, "Node": node}
        answers = await self.send("bind", body)
        if any(not answer["Error"] for answer in answers):
            self.pods[name] = Known(node, "bound", pod.amount, pod.refused)

    async def request(self) -> None:
        """As the agent of its VM."""
        asked = {
            "vCPUs": f"{self.random.randint(1, 8) * 250}m",
            "mem": f"{self.random.randint(1, 8)}Gi",
        }
        body = {
            "protoVersion": 7,
            "pod": {"name": f"vm-{self.number}", "namespace": "race"},
            "computeUnit": UNIT,
            "resources": asked,
            "lastPermit": None,
            "metrics": None,
        }
        permits = [answer["permit"] for answer in await self.send("", body) if "permit" in answer]
        amounts = [Resources(cpu_milli(p["vCPUs"]), mem_bytes(p["mem"])) for p in permits]
        self.vm.amount = amounts[0]
        for amount in amounts[1:]:
            self.vm.amount = self.vm.amount.at_least(amount)

    async def send(self, verb: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The same call to two or three replicas, one after the other or at once."""
        chosen = self.random.sample(self.replicas, self.random.randint(2, 3))
        if self.random.random() < 0.5:
            return [await self.post(replica, verb, body) for replica in chosen]
        return await asyncio.gather(*(self.post(replica, verb, body) for replica in chosen))

    async def post(self, replica: Served, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"{replica.extender}/{verb}" if verb else f"{replica.agent}/"
        async with self.http.post(url, json=body) as answer:
            if answer.status == 200:
                return dict(await answer.json())
            text = await answer.text()
            # Two at once for one VM: the one that came first here may be the later one there.
            if answer.status != 503 or "something newer" not in text:
                self.unexpected.append(f"{url}: {answer.status} {text}")
            return {}

    def pod(self, name: str, want: Resources) -> dict[str, Any]:
        requests = {"cpu": f"{want.cpu}m", "memory": str(want.mem)}
        metadata = {
            "name": name,
            "namespace": "race",
            "uid": f"uid-{name}",
            "resourceVersion": str(self.version),
        }
        spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
        return {"metadata": metadata, "spec": spec}

    def reference(self, name: str) -> dict[str, str]:
        return {"Namespace": "race", "Name": name, "UID": f"uid-{name}"}

    def disagreements(self, books: Books) -> list[str]:
        """Where the books are not at what this client was last told."""
        known = {f"uid-{name}": pod for name, pod in self.pods.items()}
        known[f"vm-uid-{self.number}"] = self.vm
        found = []
        for uid, pod in known.items():
            row = books.pods.get(PodUid(uid))
            is_ = (None, "pending") if row is None else (row.node, row.stage)
            if is_ != (pod.node or (None if row is None else "-"), pod.stage):
                found.append(f"{uid}: told {pod}, books {row}")
            elif row and row.holds and row.amount not in pod.amounts:
                found.append(f"{uid}: told {pod.amount}, books {row.amount}")
        return found


async def race(server: Server, folder: Path, *, calls: int) -> None:
    flags = ["--hold-lifetime=10m", "--settle-after=0s", "--journal-length=1000000"]
    # A busy machine may keep Redis from answering, and a lost connection tells no refusal.
    flags += ["--redis-socket-timeout=10s", "--redis-call-budget=25s", "--answer-within=25s"]
    ledger = Ledger.open(settings_at(server.url, cluster="default"))
    async with serving(server.url, f"file:{cluster_file(folder)}", *flags) as replicas:
        start = await read_books(ledger)
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            clients = [Client(number, replicas, http) for number in range(CLIENTS)]

            async def run(client: Client) -> None:
                for _ in range(calls // CLIENTS):
                    await client.act()

            await asyncio.gather(*map(run, clients))
        books = await read_books(ledger)
    await ledger.close()

    entries = await journal(server)
    replayed = replay(entries, start=start)

    assert not [text for client in clients for text in client.unexpected]
    assert breaches(books) == []
    assert replayed.problems == []
    assert replayed.differences(books) == []
    assert [text for client in clients for text in client.disagreements(books)] == []
    assert replayed.entries > calls // 4, "hardly anything was granted: the race proves nothing"
    assert any(node.pressure_cpu for node in books.nodes.values()), "nobody was ever refused"


async def journal(server: Server) -> list[JournalEntry]:
    """Every entry, oldest first."""
    client = async_client(server)
    entries: list[Any] = await client.xrange("ae:{default}:journal") or []
    await client.aclose()
    return [
        JournalEntry.decode(
            {key.decode(): value.decode(errors="replace") for key, value in fields.items()}
        )
        for _, fields in entries
    ]


async def test_replicas_never_grant_a_node_twice(valkey_server: Server, tmp_path: Path) -> None:
    await race(valkey_server, tmp_path, calls=2_000)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_replicas_never_grant_a_node_twice_in_20_000_calls(
    valkey_server: Server, tmp_path: Path
) -> None:
    await race(valkey_server, tmp_path, calls=20_480)
