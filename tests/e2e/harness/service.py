"""The service as it runs in a cluster: replicas as real processes before a real API server."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp

from tests.e2e.harness.api import NODES, PODS, Api, Object, until
from tests.e2e.harness.control_plane import SCHEDULER_NAME, answers
from tests.e2e.harness.kubelet import running_status
from tests.e2e.harness.objects import node, pod
from tests.support.manifests import ENFORCER, NAMESPACE, read, scheduler_config
from tests.support.ports import free_port
from tests.support.process import Process
from tests.support.servers import Server

HOST = "127.0.0.1"
RIGHTS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
RIGHTS |= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
OUR_LABEL = ("app.kubernetes.io/name", "autoscale-enforcer")
ROOM_ANNOTATION = "autoscale-enforcer/room-came-back"
OWN_NODE = "own"
"""Where the replicas' pods are, and no other."""
CONFIG_MAP = "scheduler-plugin-config"
CONFIG_KEY = "autoscaler-enforcer-config.json"


class UnavailableError(Exception):
    """A replica answered 503."""


class UnknownError(Exception):
    """A replica answered 404."""


REFUSALS: dict[int, type[Exception]] = {404: UnknownError, 503: UnavailableError}


@dataclass(frozen=True, slots=True)
class Replica:
    """One process of `autoscale-enforcer serve`, on the same ports in all its lives."""

    name: str
    process: Process
    extender: str
    """URL of its own, without a verb."""
    agent: str
    admin: str

    async def start(self) -> None:
        """Returns when it is ready, or raises RuntimeError with its log."""
        await asyncio.to_thread(self.process.start)

    def log(self) -> str:
        """Of all its lives."""
        return self.process.log()

    async def kill(self) -> None:
        """As a crash."""
        await asyncio.to_thread(self.process.kill)


@dataclass(slots=True)
class Service:
    """So many replicas over one Redis; use it as a context manager.

    kube-scheduler reaches them all at `url`. `permits` keeps what agents were told.
    """

    redis: Server
    kubeconfig: Path
    flags: tuple[str, ...] = ()
    count: int = 3
    permits: dict[str, Object] = field(default_factory=dict)
    """By `namespace/name` of the VM's pod."""
    replicas: list[Replica] = field(default_factory=list)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _http: aiohttp.ClientSession | None = None
    _shared: int = field(default_factory=free_port)

    async def __aenter__(self) -> Self:
        try:
            self._http = await self._stack.enter_async_context(aiohttp.ClientSession())
            self.replicas += [self.add(f"r{number + 1}") for number in range(self.count)]
            await asyncio.gather(*(each.start() for each in self.replicas))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    @property
    def url(self) -> str:
        """Of the extender, at whichever replica."""
        return f"http://{HOST}:{self._shared}/extender"

    def add(self, name: str, **changed: str) -> Replica:
        """One more, still to be started; `changed` options are given last. Ended with the rest."""
        folder = Path(tempfile.mkdtemp(prefix="ae-e2e-"))
        ports = [free_port() for _ in range(3)]
        extender, agent, admin = (f"http://{HOST}:{port}" for port in ports)
        command = [
            *(sys.executable, "-m", "autoscale_enforcer.cli.main", "serve"),
            *("--cluster", "kubernetes", "--kubeconfig", str(self.kubeconfig)),
            *("--redis-url", self.redis.url, "--host", HOST, "--replica-name", name),
            *(f"--extender-port={self._shared}", "--agent-port=0", "--admin-port=0"),
            *("--reuse-port", f"--own-ports={','.join(map(str, ports))}"),
            *("--pod-name", name, "--pod-namespace", NAMESPACE),
            *("--settle-after=0s", "--bind-budget=1s"),
            *self.flags,
            *(f"--{option.replace('_', '-')}={value}" for option, value in changed.items()),
        ]
        process = Process(command, folder=folder, is_ready=lambda: answers(f"{admin}/readyz"))
        process.name = name
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self._stack.push_async_callback(asyncio.to_thread, process.kill)
        return Replica(name, process, f"{extender}/extender", agent, admin)

    async def get(self, path: str, *, at: int = 0) -> Any:
        """What the admin port of one replica says."""
        async with self._client().get(f"{self.replicas[at].admin}{path}") as answer:
            if answer.status in REFUSALS:
                raise REFUSALS[answer.status](await answer.text())
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def extend(self, verb: str, body: Object, *, at: int = 0) -> Any:
        """Call one replica as kube-scheduler does."""
        url = f"{self.replicas[at].extender}/{verb}"
        async with self._client().post(url, json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def bind(self, found: Object, node_name: str, *, at: int = 0) -> str:
        """Bind a pod as kube-scheduler does; the error, empty for a success."""
        metadata = found["metadata"]
        body = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node_name,
        }
        return str((await self.extend("bind", body, at=at)).get("Error") or "")

    async def filter(self, found: Object, *names: str, at: int = 0) -> Object:
        """The answer about these nodes."""
        answer: Object = await self.extend(
            "filter", {"Pod": found, "NodeNames": list(names)}, at=at
        )
        return answer

    async def ask(
        self, name: str, *, cpu: str, memory: str = "1Gi", at: int = 0, namespace: str = "default"
    ) -> tuple[int, Any]:
        """Ask as an agent of protocol v5.0 does: the status, and the permit or the words."""
        full_name = f"{namespace}/{name}"
        body = {
            "protoVersion": 7,
            "pod": {"namespace": namespace, "name": name},
            "computeUnit": {"vCPUs": "250m", "mem": "1Gi"},
            "resources": {"vCPUs": cpu, "mem": memory},
            "lastPermit": self.permits.get(full_name),
            "metrics": None,
        }
        async with self._client().post(self.replicas[at].agent, json=body) as answer:
            if answer.status != 200:
                return answer.status, await answer.text()
            permit = (await answer.json())["permit"]
            self.permits[full_name] = permit
            return answer.status, permit

    async def nodes(self, *, at: int = 0) -> dict[str, Object]:
        """The ledger's nodes by name."""
        return {each["name"]: each for each in (await self.get("/api/v1/nodes", at=at))["nodes"]}

    async def breaches(self) -> list[Object]:
        """What does not hold of the ledger."""
        found: list[Object] = (await self.get("/api/v1/verify"))["breaches"]
        return found

    def tentative(self) -> int:
        """Holds that are neither bound nor gone: exactly these have a deadline."""
        with self.redis.client() as client:
            return int(client.zcard("ae:{default}:deadlines"))

    def leader(self) -> str:
        """The name of the replica that holds the lease; empty: none."""
        with self.redis.client() as client:
            holder: Any = client.hget("ae:{default}:lease", "holder")
            return holder.decode() if holder else ""

    async def until_led(self, *, by_other_than: str = "") -> Replica:
        """The replica that leads."""

        async def leader() -> str:
            name = await asyncio.to_thread(self.leader)
            return "" if name == by_other_than else name

        name = await until(leader, "a replica leads")
        return next(each for each in self.replicas if each.name == name)

    def _client(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise ValueError("use Service as a context manager")
        return self._http


async def configure(api: Api, config: Object) -> None:
    """Make it the live config."""
    await api.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE},
            "data": {CONFIG_KEY: json.dumps({"schedulerName": SCHEDULER_NAME} | config)},
        }
    )


async def deployed_account(api: Api) -> str:
    """A token of the service's account, whose rights are those of the manifests."""
    for manifest in read("single-redis"):
        if manifest["kind"] in RIGHTS:
            await api.apply(manifest)
    await until(lambda: _may_list_pods(api), "the rights hold")
    return await api.service_account(ENFORCER, namespace=NAMESPACE)


async def _may_list_pods(api: Api) -> bool:
    asked = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{ENFORCER}",
            "resourceAttributes": {"verb": "list", "resource": "pods"},
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool((await api.request("POST", path, asked))["status"]["allowed"])


def shipped_configuration(extender_url: str) -> Object:
    """The KubeSchedulerConfiguration of the manifests, for an extender at that URL."""
    shipped = scheduler_config()
    (extender,) = shipped["extenders"]
    extender["urlPrefix"] = extender_url
    return shipped


async def make_own_pods(api: Api, count: int = 3) -> list[Object]:
    """The pods that the replicas are, ready, on a node of their own where nothing else goes."""
    own = node(OWN_NODE)
    own["spec"] = {"taints": [{"key": "own", "effect": "NoSchedule"}]}
    await api.create(NODES, own)
    return [await make_own_pod(api, f"r{number + 1}") for number in range(count)]


async def make_own_pod(api: Api, name: str) -> Object:
    """One of them."""
    made = pod(
        name,
        namespace=NAMESPACE,
        labels=dict([OUR_LABEL]),
        scheduler="default-scheduler",
    )
    made["spec"]["nodeName"] = OWN_NODE
    created = await api.create(PODS, made)
    return await set_ready(api, name, status=running_status(created))


async def set_ready(api: Api, name: str, *, status: Object) -> Object:
    """Change the status of one of them."""
    return await api.patch(
        PODS,
        name,
        {"status": status},
        namespace=NAMESPACE,
        subresource="status",
        strategy="strategic",
    )
