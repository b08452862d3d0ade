"""`autoscale-enforcer dev`: everything on this machine with one command."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import click

from autoscale_enforcer.cli import values
from autoscale_enforcer.cli.exit_codes import (
    ExitCode,
    UnreachableError,
    WrongUseError,
    exit_code_table,
)
from autoscale_enforcer.config.settings import ListenSettings
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
it; nothing is left behind. Other settings of the replicas come from the environment variables that
`serve` knows, such as AE_HOLD_LIFETIME=5s.

\b
Examples:
  autoscale-enforcer dev --cluster cluster.json
  autoscale-enforcer dev --cluster cluster.json --without-pods --demo recording.jsonl
  autoscale-enforcer dev --cluster cluster.json --once 'autoscale-enforcer verify'

The command of --once, and those it runs, find the service in AE_EXTENDER_URL, AE_AGENT_URL and
AE_ADMIN_URL; stdout is theirs alone, and dev ends with the command's exit code.
"""

_ITSELF = (sys.executable, "-m", "autoscale_enforcer.cli.main")
_PORTS = ListenSettings()
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _cluster_file(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    # `serve` wants file:PATH, and both commands read AE_CLUSTER.
    return Path(str(_FILE.convert(value.removeprefix("file:"), param, ctx))).resolve()


def _port_option(door: str, default: int) -> partial[click.Option]:
    return partial(
        click.Option,
        [f"--{door}-port"],
        type=click.IntRange(0, 65535),
        metavar="PORT",
        default=default,
        show_default=True,
        help="Shared by all replicas; 0 finds a free one.",
    )


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
    help="How many.",
)
@click.option("--config", type=_FILE, metavar="FILE", help="The scheduler config.")
@click.option("--once", metavar="CMD", help="Run this shell command when ready, then end.")
@click.option(
    "--demo",
    type=_FILE,
    metavar="RECORDING",
    help="Replay this against the replicas and show `status`, before all is said to be ready.",
)
@click.option(
    "--settle-after",
    type=values.duration,
    metavar="DURATION",
    default="0s",
    show_default=True,
    help="As for `serve`; the server here is new, so there is nothing to wait for.",
)
@click.option("--json", "as_json", envvar="AE_JSON", is_flag=True, help="Addresses on one line.")
@click.pass_context
def dev(
    ctx: click.Context,
    *,
    cluster: Path,
    without_pods: bool,
    replicas: int,
    config: Path | None,
    once: str | None,
    demo: Path | None,
    settle_after: timedelta,
    as_json: bool,
    **ports: int,
) -> None:
    """Plan what is to run, run it, and end with what came of it."""
    if replicas < 1:
        raise click.UsageError("needs a replica")
    show = partial(_show, as_json=as_json, beside=once is not None)
    try:
        plan = DevPlan(
            server=find_server(),
            serve=(
                *_ITSELF,
                *("serve", "--cluster", f"file:{cluster}"),
                *(["--without-pods"] if without_pods else []),
                *(["--config", str(config.resolve())] if config else []),
                # No agent was ever told anything by a server that is new, so nothing told can be
                # missing from its books.
                *("--settle-after", values.show_duration(settle_after)),
            ),
            replicas=replicas,
            ports=BoundPorts(**{name.removesuffix("_port"): port for name, port in ports.items()}),
            demo=_demo(demo),
            once=once,
            when_ready=show,
            tell=partial(click.echo, err=True),
        )
        code = asyncio.run(run_dev(plan))
    except PortTaken as error:
        raise WrongUseError(str(error)) from error
    except (NoServer, StartFailed) as error:
        raise _start_failure(error) from error
    ctx.exit(code)
