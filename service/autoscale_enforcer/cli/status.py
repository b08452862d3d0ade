"""`autoscale-enforcer status`: what every node has, and what of it is reserved."""

from __future__ import annotations

import json
import shutil

import click

from autoscale_enforcer.cli import admin_client
from autoscale_enforcer.cli.exit_codes import exit_code_table
from autoscale_enforcer.cli.node_table import NodesAnswer, table
from autoscale_enforcer.cli.options import admin_option, json_option

HELP = """Show what every node has and what is reserved on it.

Asks one replica; each of them knows everything.

\b
  cpu, memory  reserved / capacity: what pods hold, VMs with overcommit discounted, of what the
               node offers them. The bar is full when nothing is left.
  pressure     what agents have asked for and not been granted
  flags        over capacity: more is reserved than there is (the cluster said so; never a grant)
               absent: the node is gone or unknown, its pods still count
               unsettled: waits for agents to tell their permits; nothing new is placed there
               frozen: an operator has stopped grants there; who and why is below the table
               migrating: a VM on it is being moved away

\b
Examples:
  autoscale-enforcer status
  autoscale-enforcer status --admin http://127.0.0.1:9100 --json
"""


@click.command("status", help=HELP, epilog=exit_code_table())
@admin_option
@json_option
def status(*, admin_url: str, as_json: bool) -> None:
    """Ask, then print."""
    body = admin_client.get(admin_url, "/api/v1/nodes")
    answer = admin_client.read(body, NodesAnswer, admin_url=admin_url)
    if as_json:
        click.echo(json.dumps(json.loads(body), indent=2))
    else:
        click.echo(table(answer.nodes, width=_screen_width()))
        for freeze in answer.freezes:
            click.echo(f"frozen: {freeze.words}")
        for problem in answer.config.problems:
            click.echo(f"config: a newer one is kept out: {problem}")


def _screen_width() -> int | None:
    """None where it goes to a file or a program: there nothing is shortened."""
    return shutil.get_terminal_size(fallback=(0, 0)).columns or None
