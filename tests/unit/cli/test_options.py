"""Every process setting is an option of `serve`, with the default of its dataclass."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from autoscale_enforcer.cli.exit_codes import WrongUseError
from autoscale_enforcer.cli.options import SERVE_FLAGS, Flag, settings_from, settings_options
from autoscale_enforcer.config.settings import OwnPorts, Settings


def parsed(*arguments: str, **environment: str) -> Settings:
    found: list[Settings] = []

    @click.command(context_settings={"auto_envvar_prefix": "AE"})
    @settings_options(SERVE_FLAGS)
    def command(**given: Any) -> None:
        found.append(settings_from(given))

    CliRunner().invoke(command, arguments, env=environment, catch_exceptions=False)
    return found[0]


def test_every_setting_has_an_option_and_every_option_a_setting() -> None:
    settings = {
        f"{part.name}.{field.name}"
        for part in fields(Settings)
        for field in fields(getattr(Settings(), part.name))
    }

    assert sorted(flag.setting for flag in SERVE_FLAGS) == sorted(settings)
    assert len({flag.option for flag in SERVE_FLAGS}) == len(SERVE_FLAGS)


def test_without_options_the_defaults_hold() -> None:
    settings = parsed()

    assert settings == Settings()
    assert settings.replica.name == f"{socket.gethostname()}-{os.getpid()}"


def test_options_set_their_own_setting_and_no_other() -> None:
    settings = parsed(
        *("--redis-url", "redis://h:1/2", "--hold-lifetime", "20s", "--own-ports", "0,0,0"),
        *("--extender-body-limit", "1Mi", "--without-pods", "--compute-unit", "1/4Gi"),
    )

    changed = {
        (part, name): value
        for part, values in asdict(settings).items()
        for name, value in values.items()
        if value != asdict(Settings())[part][name]
    }
    assert changed == {
        ("redis", "url"): "redis://h:1/2",
        ("holds", "lifetime"): settings.holds.sweep_every * 4,
        ("listen", "own_ports"): asdict(OwnPorts()),
        ("limits", "extender_body"): 1 << 20,
        ("replica", "without_pods"): True,
        ("replica", "compute_unit"): {"cpu": 1000, "mem": 4 << 30},
    }


TEXTS = {
    "SOURCE": "file:x",
    "": "1",
    "URL": "redis://h",
    "E,A,M": "0,0,0",
    "DURATION": "4s",
    "SIZE": "9",
    "CPU/MEMORY": "1/1Gi",
    "ADDRESS": "::1",
    "NAME": "n",
    "NUMBER": "7",
    "ENTRIES": "7",
    "PORT": "7",
    "NAMES": "a/b,c/d",
    "HOW": "replica",
}
"""By what an option takes."""

BOUND_BY_OTHERS = {
    "--lease-renew-every": "1s",
    "--redis-socket-timeout": "1s",
    "--wait-timeout": "100ms",
    "--tls-ports": "agent,extender",
}
FILE_FLAGS = ("AE_TLS_CERT_FILE", "AE_TLS_KEY_FILE", "AE_CLIENT_CA_FILE")
TLS = {"AE_TLS_PORTS": "extender,agent", "AE_EXTENDER_CLIENT_NAMES": "x"}
TO_REDIS = ("--redis-ca-file", "--redis-cert-file", "--redis-key-file")
COMPANIONS = {"AE_AGENT_AUDIENCE": {"AE_AGENT_ACCOUNTS": "a/b"}}


@pytest.mark.parametrize("flag", SERVE_FLAGS, ids=lambda flag: flag.option)
def test_each_option_also_comes_from_its_variable(flag: Flag, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    text = BOUND_BY_OTHERS.get(flag.option) or TEXTS.get(flag.metavar, str(file))

    variable = f"AE_{flag.parameter.upper()}"
    others: dict[str, str] = COMPANIONS.get(variable, {})
    if flag.setting.partition(".")[0] in ("tls", "access"):
        others = dict.fromkeys(FILE_FLAGS, str(file)) | TLS | others
    if flag.option in TO_REDIS:
        files = dict.fromkeys(("AE_REDIS_CERT_FILE", "AE_REDIS_KEY_FILE"), str(file))
        others = files | {"AE_REDIS_URL": "rediss://h"}

    settings = parsed(**(others | {variable: text}))

    part, _, name = flag.setting.partition(".")
    assert getattr(getattr(settings, part), name) != getattr(getattr(Settings(), part), name)


def test_problems_are_told_under_the_names_of_the_options() -> None:
    given = {"redis_max_connections": 0, "cluster": "x", "own_ports": OwnPorts(agent=10299)}

    with pytest.raises(WrongUseError) as refused:
        settings_from(given)

    assert refused.value.message.splitlines() == [
        "3 problems:",
        "  --redis-max-connections: must be at least 1",
        "  --own-ports: is the same port as --agent-port",
        "  --cluster: must be kubernetes or file:PATH",
    ]
