"""`autoscale-enforcer serve`: one replica, until it is told to end."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from typing import Any

import click

from autoscale_enforcer.api.door.server_settings import run_loop
from autoscale_enforcer.api.ports import Ports
from autoscale_enforcer.api.replica import run_replica
from autoscale_enforcer.cli.exit_codes import WrongUseError, exit_code_table
from autoscale_enforcer.cli.failures import exit_codes
from autoscale_enforcer.cli.options import (
    SERVE_FLAGS,
    settings_from,
    settings_options,
    under_options,
)
from autoscale_enforcer.config.settings import Settings
from autoscale_enforcer.dev.ready_line import BoundPorts, ReadyLine, ReplicaPorts
from autoscale_enforcer.errors import ConfigError

HELP = """Run one replica.

It answers kube-scheduler, autoscaler-agents and people on three ports, keeps everything in Redis,
and may be killed and started again at any moment. When it answers it prints one line of JSON with
the ports that it has: {"ready": true, "replica": NAME, "ports": {...}}. It logs to stderr. SIGTERM
and Ctrl-C end it: calls that have begun are answered, then it exits with 0.

\b
Examples:
  autoscale-enforcer serve --cluster file:cluster.json --redis-url redis://127.0.0.1:6379/0
  AE_REDIS_URL=redis+sentinel://a,b,c/main/0 autoscale-enforcer serve --cluster file:cluster.json

To try it without a Redis of your own: autoscale-enforcer dev --help.

Durations are written like 30s, 500ms, 10m; sizes in bytes or like 64Mi.
"""


@click.command("serve", help=HELP, epilog=exit_code_table())
@settings_options(SERVE_FLAGS)
def serve(**given: Any) -> None:
    """Turn the options into settings and run on them."""
    settings = settings_from(given)
    _log_to_stderr()
    with exit_codes():
        try:
            run_loop(_serve(settings))
        except ConfigError as error:
            raise WrongUseError(under_options(error.problems)) from error


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)

    def print_ready(ports: Ports) -> None:
        click.echo(ready_line(settings.replica.name, ports).encode())
        sys.stdout.flush()
        _spare_what_stays()

    await run_replica(settings, on_ready=print_ready, stop=stop)


def _spare_what_stays() -> None:
    """Keep the garbage collector off what start-up has made: nodes, pods, code.

    Untouched it looked through all of it again and again, for a quarter of the time of an agent's
    request. Requests make no cycles to speak of, so it may also look less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def ready_line(name: str, ports: Ports) -> ReadyLine:
    """What is printed once the replica answers."""
    own = ports.own and BoundPorts(
        extender=ports.own.extender, agent=ports.own.agent, admin=ports.own.admin
    )
    shared = ReplicaPorts(
        extender=ports.extender, agent=ports.agent, admin=ports.admin, own=own or None
    )
    return ReadyLine(ready=True, replica=name, ports=shared)


def _log_to_stderr() -> None:
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
