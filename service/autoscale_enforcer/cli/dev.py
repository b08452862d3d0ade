"""`autoscale-enforcer dev`: everything on this machine with one command."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from autoscale_enforcer.cli import values
from autoscale_enforcer.cli.exit_codes import (
    ExitCode,
    UnreachableError,
    WrongUseError,
    exit_code_table,
)
from autoscale_enforcer.cli.options import PORT_FLAGS, settings_from, settings_options
from autoscale_enforcer.dev.ports import PortTaken
from autoscale_enforcer.dev.private_server import NoServer, find_server
from autoscale_enforcer.dev.ready_block import Addresses, ready_json, ready_text
from autoscale_enforcer.dev.ready_line import BoundPorts
from autoscale_enforcer.dev.replica_process import ReplicaProcess, StartFailed
from autoscale_enforcer.dev.run import DevPlan, run_dev

HELP = """Run replicas, their Redis and a cluster from a file on this machine.

FILE is what this prints, from your own cluster or any other:

\b
  kubectl get nodes,pods,virtualmachines -A -o json

Starts a private Redis or Valkey (in memory, on a unix socket; the one on PATH, else the one of the
`embedded` extra) and replica processes that share three ports on 127.0.0.1. Each replica also has
three ports of its own, which are shown, so that one of them can be reached on purpose. A replica
that dies is started again. When all is ready the last line on the screen is `ready`. Ctrl-C ends
it; nothing is left behind. A port of 0 is any free one. Other settings of the replicas come from
the environment variables that `serve` knows, such as AE_HOLD_LIFETIME=5s.

\b
Examples:
  autoscale-enforcer dev --cluster cluster.json
  autoscale-enforcer dev --cluster cluster.json --without-pods --demo recording.jsonl
  autoscale-enforcer dev --cluster cluster.json --once 'autoscale-enforcer verify'

The command of --once, and those it runs, find the service in AE_EXTENDER_URL, AE_AGENT_URL and
AE_ADMIN_URL; stdout is theirs alone, and dev ends with the command's exit code.
"""

_ITSELF = (sys.executable, "-m", "autoscale_enforcer.cli.main")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _cluster_file(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    # `serve` wants file:PATH, and both commands read AE_CLUSTER.
    return Path(str(_FILE.convert(value.removeprefix("file:"), param, ctx))).resolve()


@click.command("dev", help=HELP, epilog=exit_code_table())
@click.option(
    "--cluster", metavar="FILE", required=True, callback=_cluster_file, help="Nodes, pods and VMs."
)
@click.option("--without-pods", is_flag=True, help="Take nodes and VMs only from the file.")
@click.option(
    "--replicas",
    metavar="NUMBER",
    type=click.IntRange(1, 50),
    default=3,
    show_default=True,
    help="Replica processes.",
)
@click.option("--config", type=_FILE, metavar="FILE", help="The scheduler config.")
@click.option("--once", metavar="CMD", help="Run this shell command when ready, then end.")
@click.option(
    "--demo",
    type=_FILE,
    metavar="RECORDING",
    help="First replay this against the replicas, and show `status`.",
)
@click.option(
    "--settle-after",
    type=values.duration,
    metavar="DURATION",
    default="0s",
    show_default=True,
    help="As for `serve`; this server is new, so there is nothing to wait for.",
)
@settings_options(PORT_FLAGS)
@click.option("--json", "as_json", envvar="AE_JSON", is_flag=True, help="Addresses on one line.")
@click.pass_context
def dev(
    ctx: click.Context,
    /,
    *,
    replicas: int,
    once: str | None,
    demo: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Plan what is to run, run it, and end with what came of it."""
    listen = settings_from(given, PORT_FLAGS).listen
    try:
        plan = DevPlan(
            server=find_server(),
            serve=_serve_command(**given),
            replicas=replicas,
            ports=BoundPorts(
                extender=listen.extender_port, agent=listen.agent_port, admin=listen.admin_port
            ),
            demo=_demo_commands(demo),
            once=once,
            when_ready=partial(_show, as_json=as_json, aside=once is not None),
            tell=partial(click.echo, err=True),
        )
        ctx.exit(asyncio.run(run_dev(plan)))
    except PortTaken as error:
        raise WrongUseError(str(error)) from error
    except StartFailed as error:
        wrong_use = error.code == ExitCode.WRONG_USE  # of `serve`, and so of ours
        raise (WrongUseError if wrong_use else UnreachableError)(str(error)) from error
    except NoServer as error:
        raise UnreachableError(str(error)) from error


def _serve_command(
    *,
    cluster: Path,
    without_pods: bool,
    config: Path | None,
    settle_after: timedelta,
    **_ports: int,
) -> tuple[str, ...]:
    return (
        *(*_ITSELF, "serve", "--cluster", f"file:{cluster}"),
        *(["--without-pods"] if without_pods else []),
        *(["--config", str(config)] if config else []),
        # 0 unless asked for: by a server that is new no agent was ever told anything, so nothing
        # that was told can be missing from its books.
        *("--settle-after", values.show_duration(settle_after)),
    )


def _demo_commands(recording: Path | None) -> tuple[tuple[str, ...], ...]:
    """They take the addresses from their environment."""
    if recording is None:
        return ()
    return ((*_ITSELF, "replay", str(recording)), (*_ITSELF, "status"))


def _show(
    addresses: Addresses, replicas: Sequence[ReplicaProcess], *, as_json: bool, aside: bool
) -> None:
    if as_json:
        click.echo(ready_json(addresses, replicas), err=aside)
    else:
        click.echo(f"{ready_text(addresses, replicas)}\nready", err=aside)
    (sys.stderr if aside else sys.stdout).flush()
