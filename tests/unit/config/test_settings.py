"""Process settings: what holds unless told otherwise, and what is refused."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from autoscale_enforcer.config.access_settings import PORTS, AccessSettings, TlsSettings
from autoscale_enforcer.config.redis_settings import RedisSettings
from autoscale_enforcer.config.settings import (
    HoldSettings,
    KubernetesSettings,
    LeaseSettings,
    LimitSettings,
    ListenSettings,
    OwnPorts,
    ReplicaSettings,
    Secret,
    Settings,
    parse_compute_unit,
    read_secret,
    read_token,
)
from autoscale_enforcer.errors import ConfigError
from autoscale_enforcer.model.resources import Resources

NONE = timedelta(0)


def test_defaults() -> None:
    assert asdict(Settings()) == {
        "redis": {
            "url": "redis://127.0.0.1:6379/0",
            "cluster_name": "default",
            "password_file": None,
            "sentinel_user": "",
            "sentinel_password_file": None,
            "ca_file": None,
            "cert_file": None,
            "key_file": None,
            "socket_timeout": timedelta(seconds=0.5),
            "call_budget": timedelta(seconds=2),
            "durability": "none",
            "wait_replicas": 1,
            "wait_timeout": timedelta(seconds=0.25),
            "max_connections": 8,
        },
        "listen": {
            "host": "0.0.0.0",
            "extender_port": 10298,
            "agent_port": 10299,
            "admin_port": 9100,
            "reuse_port": False,
            "own_ports": None,
        },
        "limits": {
            "extender_body": 64 * 1024 * 1024,
            "agent_body": 1024,
            "header": 16 * 1024,
            "answer_within": timedelta(seconds=2.2),
            "connections": 1000,
            "requests": 500,
            "read_timeout": timedelta(seconds=10),
            "keep_alive": timedelta(seconds=120),
        },
        "tls": {
            "cert_file": None,
            "key_file": None,
            "ports": ("extender", "admin"),
            "client_ca_file": None,
        },
        "access": {
            "extender_names": (),
            "agent_names": (),
            "agent_accounts": (),
            "agent_audience": "",
            "admin_token_file": None,
        },
        "holds": {
            "lifetime": timedelta(seconds=30),
            "sweep_every": timedelta(seconds=5),
            "settle_after": timedelta(seconds=15),
            "journal_length": 100_000,
        },
        "lease": {"lifetime": timedelta(seconds=5), "renew_every": timedelta(seconds=1.5)},
        "replica": {
            "name": f"{socket.gethostname()}-{os.getpid()}",
            "cluster": None,
            "without_pods": False,
            "config": None,
            "compute_unit": None,
        },
        "kubernetes": {
            "kubeconfig": None,
            "context": "",
            "reads_per_second": 50,
            "bind_budget": timedelta(seconds=5),
            "compare_every": timedelta(minutes=5),
            "pod_name": "",
            "pod_namespace": "kube-system",
            "pod_selector": "app.kubernetes.io/name=autoscale-enforcer",
        },
    }


BAD: list[tuple[str, Any, str]] = [
    ("redis", RedisSettings(url="localhost:6379"), "redis.url"),
    ("redis", RedisSettings(url=""), "redis.url"),
    ("redis", RedisSettings(cluster_name=""), "redis.cluster_name"),
    ("redis", RedisSettings(cluster_name="a}b"), "redis.cluster_name"),
    ("redis", RedisSettings(socket_timeout=NONE), "redis.socket_timeout"),
    ("redis", RedisSettings(call_budget=timedelta(seconds=0.9)), "redis.call_budget"),
    ("redis", RedisSettings(max_connections=0), "redis.max_connections"),
    ("redis", RedisSettings(durability="disk"), "redis.durability"),
    ("redis", RedisSettings(ca_file=Path("ca")), "redis.ca_file"),
    ("redis", RedisSettings(url="rediss://h", cert_file=Path("c")), "redis.cert_file"),
    ("redis", RedisSettings(url="rediss://h", key_file=Path("k")), "redis.cert_file"),
    ("redis", RedisSettings(wait_replicas=0), "redis.wait_replicas"),
    ("redis", RedisSettings(wait_timeout=NONE), "redis.wait_timeout"),
    ("redis", RedisSettings(wait_timeout=timedelta(seconds=0.5)), "redis.wait_timeout"),
    ("listen", ListenSettings(host=""), "listen.host"),
    ("listen", ListenSettings(agent_port=65536), "listen.agent_port"),
    ("listen", ListenSettings(admin_port=-1), "listen.admin_port"),
    ("listen", ListenSettings(agent_port=10298), "listen.agent_port"),
    ("listen", ListenSettings(own_ports=OwnPorts(admin=9100)), "listen.own_ports.admin"),
    ("limits", LimitSettings(extender_body=0), "limits.extender_body"),
    ("limits", LimitSettings(agent_body=-1), "limits.agent_body"),
    ("limits", LimitSettings(header=0), "limits.header"),
    ("limits", LimitSettings(answer_within=NONE), "limits.answer_within"),
    ("limits", LimitSettings(connections=0), "limits.connections"),
    ("limits", LimitSettings(requests=0), "limits.requests"),
    ("limits", LimitSettings(read_timeout=NONE), "limits.read_timeout"),
    ("limits", LimitSettings(keep_alive=NONE), "limits.keep_alive"),
    ("holds", HoldSettings(lifetime=NONE), "holds.lifetime"),
    ("holds", HoldSettings(sweep_every=NONE), "holds.sweep_every"),
    ("holds", HoldSettings(settle_after=-timedelta(seconds=1)), "holds.settle_after"),
    ("holds", HoldSettings(journal_length=-1), "holds.journal_length"),
    ("lease", LeaseSettings(renew_every=NONE), "lease.renew_every"),
    ("lease", LeaseSettings(lifetime=timedelta(seconds=2.9)), "lease.lifetime"),
    ("kubernetes", KubernetesSettings(reads_per_second=0), "kubernetes.reads_per_second"),
    ("kubernetes", KubernetesSettings(bind_budget=-timedelta(1)), "kubernetes.bind_budget"),
    ("kubernetes", KubernetesSettings(compare_every=NONE), "kubernetes.compare_every"),
    ("kubernetes", KubernetesSettings(pod_name="p", pod_selector=""), "kubernetes.pod_name"),
    ("replica", ReplicaSettings(name=""), "replica.name"),
    ("replica", ReplicaSettings(name="a\r\nX-Evil: b"), "replica.name"),
    ("replica", ReplicaSettings(cluster="cluster.json"), "replica.cluster"),
    ("replica", ReplicaSettings(cluster="file:"), "replica.cluster"),
    ("replica", ReplicaSettings(compute_unit=Resources(250, 0)), "replica.compute_unit"),
]


FILE = Path("x.pem")
ON = TlsSettings(cert_file=FILE, key_file=FILE, ports=PORTS, client_ca_file=FILE)
BAD_TOGETHER: list[tuple[TlsSettings, AccessSettings, str]] = [
    (TlsSettings(cert_file=FILE), AccessSettings(), "tls.cert_file"),
    (TlsSettings(key_file=FILE), AccessSettings(), "tls.cert_file"),
    (TlsSettings(ports=()), AccessSettings(), "tls.ports"),
    (TlsSettings(ports=("agents",)), AccessSettings(), "tls.ports"),
    (ON, AccessSettings(), "tls.client_ca_file"),
    (
        TlsSettings(client_ca_file=FILE),
        AccessSettings(agent_names=("a",)),
        "tls.client_ca_file access.agent_names",
    ),
    (TlsSettings(), AccessSettings(extender_names=("a",)), "access.extender_names"),
    (
        replace(ON, ports=("admin", "agent")),
        AccessSettings(extender_names=("a",)),
        "access.extender_names",
    ),
    (replace(ON, ports=("extender",)), AccessSettings(agent_names=("a",)), "access.agent_names"),
    (
        replace(ON, ports=("extender",)),
        AccessSettings(extender_names=("a",), agent_accounts=("a/b",)),
        "access.agent_accounts",
    ),
    (ON, AccessSettings(agent_names=("a",), agent_accounts=("b",)), "access.agent_accounts"),
    (ON, AccessSettings(agent_names=("a",), agent_audience="x"), "access.agent_audience"),
]


@pytest.mark.parametrize(("tls", "access", "paths"), BAD_TOGETHER, ids=range(len(BAD_TOGETHER)))
def test_what_ports_cannot_ask_of_callers_is_refused(
    tls: TlsSettings, access: AccessSettings, paths: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Settings(tls=tls, access=access)

    assert [problem.partition(": ")[0] for problem in refused.value.problems] == paths.split()


def test_what_ports_can_ask_of_callers_is_taken() -> None:
    plain = TlsSettings(cert_file=FILE, key_file=FILE)

    Settings(tls=plain)
    Settings(tls=ON, access=AccessSettings(extender_names=("a",), agent_names=("b",)))
    Settings(
        tls=replace(plain, ports=("agent",)),
        access=AccessSettings(agent_accounts=("kube-system/agent",), agent_audience="x"),
    )


@pytest.mark.parametrize(("part", "value", "path"), BAD, ids=range(len(BAD)))
def test_settings_that_cannot_be_used_are_refused(part: str, value: Any, path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        replace(Settings(), **{part: value})

    (problem,) = refused.value.problems
    assert problem.startswith(f"{path}: ")


def test_settings_at_the_edge_of_what_is_allowed_are_taken() -> None:
    second = timedelta(seconds=1)

    Settings(
        redis=RedisSettings(socket_timeout=second, call_budget=2 * second, max_connections=1),
        listen=ListenSettings(extender_port=65535),
        limits=LimitSettings(extender_body=1, agent_body=1, header=1, connections=1, requests=1),
        holds=HoldSettings(lifetime=second, settle_after=NONE, journal_length=0),
        lease=LeaseSettings(renew_every=second, lifetime=2 * second),
    )


def test_settings_tell_every_bad_field_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        Settings(
            redis=RedisSettings(max_connections=0, cluster_name="{}"),
            lease=LeaseSettings(renew_every=NONE, lifetime=timedelta(seconds=-1)),
        )

    assert [problem.partition(": ")[0] for problem in refused.value.problems] == [
        "redis.cluster_name",
        "redis.max_connections",
        "lease.renew_every",
        "lease.lifetime",
    ]


def test_ports_of_zero_are_any_free_ones_and_never_the_same() -> None:
    settings = Settings(
        listen=ListenSettings(extender_port=0, agent_port=0, admin_port=0, own_ports=OwnPorts())
    )

    assert settings.listen.own_ports == OwnPorts(extender=0, agent=0, admin=0)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("redis://:hush@cache:6379/1", "redis://:***@cache:6379/1"),
        ("rediss://app:hu@sh@cache/1?ssl_cert_reqs=none", "rediss://app:***@cache/1"),
        ("redis+sentinel://:hush@a:26379,b/main/0", "redis+sentinel://:***@a:26379,b/main/0"),
        ("redis://:hu?sh@cache:6379/1", "redis://:***@cache:6379/1"),
        ("redis://app@cache:6379", "redis://app@cache:6379"),
        ("unix:///run/redis.sock?db=1&password=hush", "unix:///run/redis.sock"),
    ],
)
def test_shown_url_has_no_password(url: str, shown: str) -> None:
    settings = RedisSettings(url=url)

    assert settings.shown_url == shown
    assert "hu" not in repr(settings)


def test_secret_shows_itself_to_reveal_only() -> None:
    secret = Secret("hush")

    assert (
        f"{secret} {secret!r} {[secret]} {secret!s:>8}" == "Secret() Secret() [Secret()] Secret()"
    )
    assert secret.reveal() == "hush"
    assert secret == Secret("hush") != Secret("other")
    assert len({secret, Secret("hush")}) == 1


def test_read_secret_leaves_out_the_last_newline(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(" hush \n")

    assert read_secret(file) == Secret(" hush ")


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"])
def test_read_secret_refuses_what_holds_none(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ConfigError) as refused:
        read_secret(file)

    assert refused.value.problems[0].startswith(f"{file}: ")


@pytest.mark.parametrize(
    "content", [None, b"", b"two words", "tök".encode(), b"to\nken", b"to\tken"]
)
def test_read_token_refuses_what_no_header_carries(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ConfigError) as refused:
        read_token(file)

    assert refused.value.problems[0].startswith(f"{file}: ")


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("250m/1Gi", Resources(250, 1 << 30)),
        ("1/4Gi", Resources(1000, 4 << 30)),
        (" 0.5 / 512Mi ", Resources(500, 512 << 20)),
    ],
)
def test_compute_unit_is_cpu_and_memory(text: str, unit: Resources) -> None:
    assert parse_compute_unit(text) == unit


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["compute unit: must be CPU/MEMORY, such as 250m/1Gi"]),
        ("250m", ["compute unit: must be CPU/MEMORY, such as 250m/1Gi"]),
        ("0/1Gi", ["compute unit: CPU: must be above 0"]),
        ("250m/0", ["compute unit: memory: must be above 0"]),
        ("250m/1Gi/2", ["compute unit: memory: '1Gi/2' is not a quantity"]),
        (
            "x/-1",
            [
                "compute unit: CPU: 'x' is not a quantity",
                "compute unit: memory: '-1' is negative",
            ],
        ),
    ],
)
def test_compute_unit_that_is_none_is_refused(text: str, problems: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_compute_unit(text)

    assert refused.value.problems == problems
