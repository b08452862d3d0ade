"""Every process setting as an option, and the options that several commands share.

A setting's default is taken from its dataclass and stands nowhere else; a test holds the table
below against the fields of `Settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from autoscale_enforcer.cli import values
from autoscale_enforcer.cli.exit_codes import WrongUseError
from autoscale_enforcer.cli.failures import problem_lines
from autoscale_enforcer.config.redis_settings import DURABILITIES
from autoscale_enforcer.config.settings import Settings
from autoscale_enforcer.errors import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])

_DEFAULTS = Settings()
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FILE_AT_TIMES = click.Path(dir_okay=False, path_type=Path)
"""One that may be made while we run."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One setting as an option."""

    setting: str
    """`part.field` of `Settings`."""
    option: str
    metavar: str
    type: Any
    help: str
    variable: str = ""
    """An environment variable beside AE_…, where the field has a name for it."""

    @property
    def parameter(self) -> str:
        """The name under which click hands the value over."""
        return self.option.removeprefix("--").replace("-", "_")

    @property
    def default(self) -> Any:
        """As its dataclass has it, written as one would write it."""
        part, _, name = self.setting.partition(".")
        if self.setting == "replica.name":
            return None  # of each process its own: not the one of whoever prints the help
        default = getattr(getattr(_DEFAULTS, part), name)
        return values.written(default, is_size=self.type is values.size)

    def decorate(self, command: Command) -> Command:
        """The command with this option."""
        if self.type is bool:
            return click.option(self.option, is_flag=True, help=self.help)(command)
        default = self.default
        known = [f"AE_{self.parameter.upper()}", self.variable] if self.variable else None
        return click.option(
            self.option,
            envvar=known,
            type=self.type,
            metavar=self.metavar,
            default=default,
            show_default=default is not None,
            help=self.help,
        )(command)


REDIS_FLAGS = (
    Flag("redis.url", "--redis-url", "URL", str,
         "Where the ledger is: redis://, rediss://, unix://, redis+sentinel://HOST,HOST/NAME/DB or "
         "redis+cluster://HOST,HOST; rediss+sentinel:// and rediss+cluster:// with TLS."),
    Flag("redis.cluster_name", "--cluster-name", "NAME", str,
         "Of the Kubernetes cluster; several share one Redis under different names."),
    Flag("redis.password_file", "--redis-password-file", "FILE", _FILE,
         "Holds the password of Redis, so that it appears in no process list."),
    Flag("redis.sentinel_user", "--sentinel-user", "NAME", str, "User of the Sentinels."),
    Flag("redis.sentinel_password_file", "--sentinel-password-file", "FILE", _FILE,
         "Holds the password of the Sentinels."),
    Flag("redis.ca_file", "--redis-ca-file", "FILE", _FILE,
         "With TLS: certificates that Redis is verified against, else the system's."),
    Flag("redis.cert_file", "--redis-cert-file", "FILE", _FILE,
         "With TLS: certificate to show to Redis and Sentinels."),
    Flag("redis.key_file", "--redis-key-file", "FILE", _FILE, "Key of --redis-cert-file."),
    Flag("redis.socket_timeout", "--redis-socket-timeout", "DURATION", values.duration,
         "Without an answer for so long, a connection is given up."),
    Flag("redis.call_budget", "--redis-call-budget", "DURATION", values.duration,
         "For one call to the ledger, its retry included; below half of what kube-scheduler "
         "waits."),
    Flag("redis.durability", "--durability", "HOW", click.Choice(DURABILITIES),
         "What must have happened to a change before it is told: none; replica: replicas of Redis "
         "have it; aof: it is on Redis' disk, which needs appendfsync always."),
    Flag("redis.wait_replicas", "--wait-replicas", "NUMBER", int,
         "How many replicas must have it, with --durability replica."),
    Flag("redis.wait_timeout", "--wait-timeout", "DURATION", values.duration,
         "For replicas or disk; after that nothing is told. Below --redis-socket-timeout."),
    Flag("redis.max_connections", "--redis-max-connections", "NUMBER", int,
         "Connections to Redis at most."),
)  # fmt: skip
"""Also what export and import need to find the ledger."""

PORT_FLAGS = (
    Flag("listen.extender_port", "--extender-port", "PORT", int, "For kube-scheduler."),
    Flag("listen.agent_port", "--agent-port", "PORT", int, "For autoscaler-agents."),
    Flag("listen.admin_port", "--admin-port", "PORT", int, "For metrics, probes and people."),
)  # fmt: skip
"""The three doors; those of `dev` are shared by its replicas."""

SERVE_FLAGS = (
    Flag("replica.cluster", "--cluster", "SOURCE", str,
         "Where nodes, pods and VMs come from: kubernetes, or file:PATH with what `kubectl get "
         "nodes,pods,virtualmachines -A -o json` printed."),
    Flag("replica.without_pods", "--without-pods", "", bool,
         "Take nodes and VMs only from the file; pods become known as they are sent."),
    Flag("replica.config", "--config", "FILE", _FILE,
         "The scheduler config, in any of the formats that `check-config` knows."),
    Flag("replica.compute_unit", "--compute-unit", "CPU/MEMORY", values.compute_unit,
         "The step in which VMs grow whose agents bring none (below v4.0), such as 250m/1Gi."),
    Flag("replica.name", "--replica-name", "NAME", str,
         "Sent as X-Replica with every answer; host and process id unless given."),
    *REDIS_FLAGS,
    Flag("listen.host", "--host", "ADDRESS", str, "Address of every port."),
    *PORT_FLAGS,
    Flag("listen.reuse_port", "--reuse-port", "", bool,
         "Let several replicas on one machine share the three ports."),
    Flag("listen.own_ports", "--own-ports", "E,A,M", values.own_ports,
         "Answer on three more ports that no other replica has (extender, agents, admin); 0 takes "
         "any free one."),
    Flag("limits.extender_body", "--extender-body-limit", "SIZE", values.size,
         "Largest body from kube-scheduler."),
    Flag("limits.agent_body", "--agent-body-limit", "SIZE", values.size,
         "Largest body from an agent."),
    Flag("limits.header", "--header-limit", "SIZE", values.size,
         "Longest head of a request, its line and headers."),
    Flag("limits.answer_within", "--answer-within", "DURATION", values.duration,
         "For a whole answer to kube-scheduler or an agent; below half of the extender's "
         "httpTimeout."),
    Flag("limits.connections", "--connections", "NUMBER", int,
         "Connections at each port at most."),
    Flag("limits.requests", "--requests", "NUMBER", int,
         "Requests worked on at once at each port; half of them for one address."),
    Flag("limits.read_timeout", "--read-timeout", "DURATION", values.duration,
         "For a head to arrive, for its body, and for an answer to be taken."),
    Flag("limits.keep_alive", "--keep-alive", "DURATION", values.duration,
         "How long an idle connection stays open; above the 90 s of Go's clients."),
    Flag("tls.cert_file", "--tls-cert-file", "FILE", _FILE,
         "Our certificate, PEM; ports speak TLS with it. Read anew when it changes, like the next "
         "two."),
    Flag("tls.key_file", "--tls-key-file", "FILE", _FILE, "Its key, PEM."),
    Flag("tls.client_ca_file", "--client-ca-file", "FILE", _FILE,
         "CAs whose client certificates are believed, PEM."),
    Flag("tls.ports", "--tls-ports", "NAMES", values.names,
         "Which ports speak TLS where there is a certificate: extender, agent, admin."),
    Flag("access.extender_names", "--extender-client-names", "NAMES", values.names,
         "Names in client certificates that may call the extender port; needs --client-ca-file."),
    Flag("access.agent_names", "--agent-client-names", "NAMES", values.names,
         "Names in client certificates that may call the agent port."),
    Flag("access.agent_accounts", "--agent-accounts", "NAMES", values.names,
         "Service accounts, NAMESPACE/NAME, whose tokens may call the agent port, as Kubernetes "
         "reviews them."),
    Flag("access.agent_audience", "--agent-audience", "NAME", str,
         "That these tokens must be made for; else the API server's own."),
    Flag("access.admin_token_file", "--admin-token-file", "FILE", _FILE_AT_TIMES,
         "Holds the token that changes over the admin port must carry; without it, or while it is "
         "not there, nobody changes anything there."),
    Flag("holds.lifetime", "--hold-lifetime", "DURATION", values.duration,
         "Of a reservation that is not bound yet, until it is looked into."),
    Flag("holds.sweep_every", "--sweep-every", "DURATION", values.duration,
         "Between looks for such reservations."),
    Flag("holds.settle_after", "--settle-after", "DURATION", values.duration,
         "After a loss of Redis: how long nodes with VMs wait for agents to tell their permits."),
    Flag("holds.journal_length", "--journal-length", "ENTRIES", int,
         "Changes kept for `verify` and for people, about."),
    Flag("lease.lifetime", "--lease-lifetime", "DURATION", values.duration,
         "So long nobody leads when the leading replica is killed."),
    Flag("lease.renew_every", "--lease-renew-every", "DURATION", values.duration,
         "Between renewals of the lease; at most half of its lifetime."),
    Flag("kubernetes.kubeconfig", "--kubeconfig", "FILE", _FILE,
         "How to reach the cluster; else $KUBECONFIG, else as the pod it runs in."),
    Flag("kubernetes.context", "--context", "NAME", str, "Of the kubeconfig."),
    Flag("kubernetes.reads_per_second", "--reads-per-second", "NUMBER", int,
         "Reads of single objects from the API server at most."),
    Flag("kubernetes.bind_budget", "--bind-budget", "DURATION", values.duration,
         "How long a Binding may be on its way; after a loss of Redis the cluster is listed no "
         "sooner."),
    Flag("kubernetes.compare_every", "--compare-every", "DURATION", values.duration,
         "Between full compares of the ledger with the cluster."),
    Flag("kubernetes.pod_name", "--pod-name", "NAME", str,
         "Of the pod this runs in; POD_NAME says it too.", "POD_NAME"),
    Flag("kubernetes.pod_namespace", "--pod-namespace", "NAME", str,
         "Where the replicas' pods are; POD_NAMESPACE says it too.", "POD_NAMESPACE"),
    Flag("kubernetes.pod_selector", "--pod-selector", "SELECTOR", str,
         "Picks the replicas' pods by their labels."),
)  # fmt: skip
"""In the order of `serve --help`."""


def settings_options(flags: Iterable[Flag]) -> Callable[[Command], Command]:
    """Gives a command these options; `settings_from` turns what it is handed into settings."""

    def decorate(command: Command) -> Command:
        for flag in reversed(tuple(flags)):
            command = flag.decorate(command)
        return command

    return decorate


def settings_from(given: Mapping[str, Any], flags: Iterable[Flag] = SERVE_FLAGS) -> Settings:
    """Settings from the values of a command's options; what has none of `flags` is as usual.

    Raises WrongUseError, each problem under the name of its option.
    """
    parts: dict[str, dict[str, Any]] = {}
    for flag in flags:
        value = given.get(flag.parameter)
        if value is not None:
            part, _, name = flag.setting.partition(".")
            parts.setdefault(part, {})[name] = value
    try:
        # Built anew, never copied from _DEFAULTS: some defaults are of the process that runs.
        built = {part: type(getattr(_DEFAULTS, part))(**found) for part, found in parts.items()}
        return Settings(**built)
    except ConfigError as error:
        raise WrongUseError(under_options(error.problems)) from error


def under_options(problems: list[str]) -> str:
    """The problems for people, each under the name of its option where it is about a setting."""
    return problem_lines([_under_its_option(problem) for problem in problems])


def _under_its_option(problem: str) -> str:
    path, colon, words = problem.partition(": ")
    for flag in SERVE_FLAGS:
        words = words.replace(flag.setting, flag.option)
    for flag in SERVE_FLAGS:
        if path == flag.setting or path.startswith(f"{flag.setting}."):
            return f"{flag.option}{colon}{words}"
    return problem


def admin_option(command: Command) -> Command:
    """The option `--admin`."""
    return click.option(
        "--admin",
        "--admin-url",
        "admin_url",
        metavar="URL",
        default=f"http://127.0.0.1:{_DEFAULTS.listen.admin_port}",
        show_default=True,
        help="The admin port of any replica; also from AE_ADMIN_URL.",
    )(command)


def json_option(command: Command) -> Command:
    """The option `--json`."""
    return click.option(
        "--json",
        "as_json",
        envvar="AE_JSON",
        is_flag=True,
        help="Print one JSON document instead.",
    )(command)
