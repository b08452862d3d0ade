"""How one process runs: frozen values by subject, built once from flags or the environment.

The command line makes them and hands each part to whoever needs it; nobody else reads flags or
environment variables. What must hold between values is checked where `Settings` is put together.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from autoscale_enforcer.config.access_settings import AccessSettings, TlsSettings
from autoscale_enforcer.config.readers import some_cpu, some_mem
from autoscale_enforcer.config.redis_settings import RedisSettings
from autoscale_enforcer.errors import ConfigError, ObjectError
from autoscale_enforcer.model.resources import Resources

MIB = 1 << 20

_REPLICA_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")
_SOURCE = re.compile(r"file:.+|kubernetes", re.DOTALL)

_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that shows itself to `reveal` only: no log, trace or page prints it by accident."""

    _value: str = field(repr=False)

    def reveal(self) -> str:
        """The text itself."""
        return self._value


def read_secret(file: Path) -> Secret:
    """What the file holds, without the newline that editors leave at its end.

    Raises ConfigError when it cannot be read or is empty.
    """
    try:
        text = file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file}: cannot be read: {error}"]) from error
    if not text:
        raise ConfigError([f"{file}: is empty"])
    return Secret(text)


def read_token(file: Path) -> Secret:
    """A secret that is sent in a header.

    Raises ConfigError as `read_secret` does, and when a header cannot carry it.
    """
    token = read_secret(file)
    text = token.reveal()
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise ConfigError([f"{file}: must be ASCII without spaces, for a header carries it"])
    return token


def find_token(file: Path) -> Secret | None:
    """As `read_token`; None where there is no such file, as of a Secret that is not made yet."""
    return read_token(file) if file.exists() else None


def parse_compute_unit(text: str) -> Resources:
    """`250m/1Gi` as CPU and memory; raises ConfigError with every part that is wrong."""
    cpu, slash, mem = text.partition("/")
    if not slash:
        raise ConfigError(["compute unit: must be CPU/MEMORY, such as 250m/1Gi"])
    problems: list[str] = []
    found = []
    for part, read, value in (("CPU", some_cpu, cpu), ("memory", some_mem, mem)):
        try:
            found.append(read(value))
        except ObjectError as error:
            problems.append(str(error.under(f"compute unit: {part}")))
    if problems:
        raise ConfigError(problems)
    return Resources(*found)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPorts:
    """Three more ports that this replica shares with no other; 0 takes any free one."""

    extender: int = 0
    agent: int = 0
    admin: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenSettings:
    """Where this replica answers."""

    host: str = "0.0.0.0"  # noqa: S104 - agents and kube-scheduler call from other pods
    """Address of every port."""
    extender_port: int = 10298
    """kube-scheduler's; the port on which the reference dumped its state, free since v0.42."""
    agent_port: int = 10299
    """Fixed by the agents: they dial it at the IP of the pod they found."""
    admin_port: int = 9100
    """Metrics, probes, and what people look at; where the reference has its metrics."""
    reuse_port: bool = False
    """Lets several replicas on one machine share the three ports above; the kernel spreads
    connections over them."""
    own_ports: OwnPorts | None = None
    """Beside shared ports, to reach one replica on purpose: tests, scrapes, people."""

    def problems(self) -> Iterator[str]:
        """What cannot be used, field first."""
        if not self.host:
            yield "listen.host: must not be empty"
        named = [
            ("listen.extender_port", self.extender_port),
            ("listen.agent_port", self.agent_port),
            ("listen.admin_port", self.admin_port),
        ]
        if self.own_ports:
            named += [
                ("listen.own_ports.extender", self.own_ports.extender),
                ("listen.own_ports.agent", self.own_ports.agent),
                ("listen.own_ports.admin", self.own_ports.admin),
            ]
        taken: dict[int, str] = {}
        for name, port in named:
            if not 0 <= port <= 65535:
                yield f"{name}: must be a port, 0 (any free one) to 65535"
            elif port in taken:
                yield f"{name}: is the same port as {taken[port]}"
            elif port:
                taken[port] = name


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """What a client may send, and how slowly."""

    extender_body: int = 64 * MIB
    """Bytes. 5,000 whole Node objects of 10 KiB, which kube-scheduler sends with
    `nodeCacheCapable: false`, are 49 MiB."""
    agent_body: int = 1024
    """Bytes; the reference refuses more, and the longest request has a few hundred."""
    header: int = 16 * 1024
    """Bytes of a request's head, its line and headers; beyond any client we know."""
    answer_within: timedelta = timedelta(seconds=2.2)
    """For a whole answer to kube-scheduler or an agent, Redis and the API server included. Below
    half of the 5 s that kube-scheduler gives an extender; what was begun goes on after it."""
    connections: int = 1000
    """At each port; a newcomer beyond takes the place of the worst of the others, or is closed.
    Every agent keeps one: a cluster of more nodes needs more."""
    requests: int = 500
    """Worked on at once at each port, half of them for one address; others get 503. Binds that go
    on behind their answer are as many at most, beside those."""
    read_timeout: timedelta = timedelta(seconds=10)
    """For one whole head to arrive, then for its body, then for the answer to be taken. Twice what
    kube-scheduler waits; a client that is slower has given up, and would hold a connection for
    nothing."""
    keep_alive: timedelta = timedelta(seconds=120)
    """For the next request of a connection. Go's clients drop an idle one after 90 s, and must be
    the first to: a request that meets our close on its way is lost."""

    def problems(self) -> Iterator[str]:
        """What cannot be used, field first."""
        for name in ("extender_body", "agent_body", "header", "connections", "requests"):
            if getattr(self, name) < 1:
                yield f"limits.{name}: must be at least 1"
        for name in ("answer_within", "read_timeout", "keep_alive"):
            if getattr(self, name) <= _NO_TIME:
                yield f"limits.{name}: must be above 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldSettings:
    """How long the ledger keeps what may still change."""

    lifetime: timedelta = timedelta(seconds=30)
    """Of a tentative hold, until it is looked into. Must exceed the slowest bind: kube-scheduler
    gives one 5 s, and sends others while the first runs."""
    sweep_every: timedelta = timedelta(seconds=5)
    """Between looks for holds past their deadline; what such a hold costs at most beyond it."""
    settle_after: timedelta = timedelta(seconds=15)
    """The agents' longest period: after a loss every VM has told its permit by then."""
    journal_length: int = 100_000
    """Entries. At 200 bytes each 20 MB of Redis, about a minute at 2,000 requests/s."""

    def problems(self) -> Iterator[str]:
        """What cannot be used, field first."""
        for name in ("lifetime", "sweep_every"):
            if getattr(self, name) <= _NO_TIME:
                yield f"holds.{name}: must be above 0"
        if self.settle_after < _NO_TIME:
            yield "holds.settle_after: must not be below 0"
        if self.journal_length < 0:
            yield "holds.journal_length: must not be below 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Which replica turns what the cluster says into facts."""

    lifetime: timedelta = timedelta(seconds=5)
    """Without renewal. So long nobody leads when the leader is killed."""
    renew_every: timedelta = timedelta(seconds=1.5)
    """Lets a renewal be lost or late without the lease changing hands."""

    def problems(self) -> Iterator[str]:
        """What cannot be used, field first."""
        if self.renew_every <= _NO_TIME:
            yield "lease.renew_every: must be above 0"
        if self.lifetime < 2 * self.renew_every:
            yield "lease.lifetime: must let one renewal fail: at least twice lease.renew_every"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """How a live cluster is asked, and who we are in it."""

    kubeconfig: Path | None = None
    """Else $KUBECONFIG, else the pod's own service account, else ~/.kube/config."""
    context: str = ""
    """Of the kubeconfig; empty: its current one."""
    reads_per_second: int = 50
    """Reads of single objects at most, so that no storm of ours becomes the API server's."""
    bind_budget: timedelta = timedelta(seconds=5)
    """How long a Binding may be on its way, which is what kube-scheduler gives a bind; before
    that much time has passed since a loss of the ledger was noticed the cluster is not believed."""
    compare_every: timedelta = timedelta(minutes=5)
    """Between full compares of the ledger with the cluster."""
    pod_name: str = ""
    """Of this replica's pod; empty: no pod is touched when room comes back, none is labelled."""
    pod_namespace: str = "kube-system"
    """Where the replicas' pods are; agents look in kube-system."""
    pod_selector: str = "app.kubernetes.io/name=autoscale-enforcer"
    """Label selector of all replicas' pods."""

    def problems(self) -> Iterator[str]:
        """What cannot be used, field first."""
        if self.reads_per_second < 1:
            yield "kubernetes.reads_per_second: must be at least 1"
        if self.bind_budget < _NO_TIME:
            yield "kubernetes.bind_budget: must not be below 0"
        if self.compare_every <= _NO_TIME:
            yield "kubernetes.compare_every: must be above 0"
        if self.pod_name and not (self.pod_namespace and self.pod_selector):
            yield "kubernetes.pod_name: needs kubernetes.pod_namespace and kubernetes.pod_selector"


def _this_process() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """Who this replica is and what it serves."""

    name: str = field(default_factory=_this_process)
    """Sent as `X-Replica` with every answer and written into the lease; host and process id
    unless given, which no other replica has."""
    cluster: str | None = None
    """Where nodes, pods and VMs come from: `kubernetes`, or `file:PATH`."""
    without_pods: bool = False
    """Nodes and VMs only from the file: pods become known as they are sent. For replaying recorded
    traffic, whose pods would otherwise be bound before their first filter."""
    config: Path | None = None
    """The scheduler config; without one the defaults of `SchedulerConfig` hold."""
    compute_unit: Resources | None = None
    """The step for agents that bring none (below v4.0), where the config has none either."""

    def problems(self) -> Iterator[str]:
        """What cannot be used, field first."""
        if not _REPLICA_NAME.fullmatch(self.name):
            yield "replica.name: must be 1 to 253 letters, digits, '.', '_' or '-' (it is a header)"
        if self.cluster is not None and not _SOURCE.fullmatch(self.cluster):
            yield "replica.cluster: must be kubernetes or file:PATH"
        if self.compute_unit and min(self.compute_unit.cpu, self.compute_unit.mem) <= 0:
            yield "replica.compute_unit: CPU and memory must be above 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of it. Raises ConfigError with every field that cannot be used."""

    redis: RedisSettings = field(default_factory=RedisSettings)
    listen: ListenSettings = field(default_factory=ListenSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    holds: HoldSettings = field(default_factory=HoldSettings)
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    replica: ReplicaSettings = field(default_factory=ReplicaSettings)
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)

    def __post_init__(self) -> None:
        parts = (
            *(self.redis, self.listen, self.limits, self.tls, self.holds),
            *(self.lease, self.replica, self.kubernetes),
        )
        problems = [problem for part in parts for problem in part.problems()]
        problems += self.access.problems(self.tls)
        if problems:
            raise ConfigError(problems)
