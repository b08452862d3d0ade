"""`autoscale-enforcer verify`: does the ledger add up?"""

from __future__ import annotations

import json

import click
import msgspec

from autoscale_enforcer.cli import admin_client
from autoscale_enforcer.cli.exit_codes import ExitCode, exit_code_table
from autoscale_enforcer.cli.options import admin_option, json_option

HELP = """Recompute the ledger's sums and print whatever does not add up.

The service reads its whole ledger in small portions, while it changes, and checks its invariants
from that alone; what did not add up only because it changed meanwhile is no breach:

\b
  1  a node's sums are exactly those of its pods, and every tentative hold has a deadline
  2  a pod is on one node at most, and a name points to the newest pod known under it
  3  no grant left a node over capacity
  4  versions only rise
  5  every row is where the journal's last entry about it left it

Exit code 1 means that there is a breach: either a bug of ours, or somebody wrote into Redis.

\b
Examples:
  autoscale-enforcer verify
  autoscale-enforcer verify --admin http://127.0.0.1:9100 --json
"""


class Breach(msgspec.Struct, frozen=True):
    """One thing that does not hold."""

    invariant: int
    subject: str
    text: str


class VerifyAnswer(msgspec.Struct, frozen=True):
    """The answer of `/api/v1/verify`."""

    breaches: list[Breach]


@click.command("verify", help=HELP, epilog=exit_code_table())
@admin_option
@json_option
@click.pass_context
def verify(ctx: click.Context, *, admin_url: str, as_json: bool) -> None:
    """Ask, print, and tell by the exit code."""
    body = admin_client.get(admin_url, "/api/v1/verify")
    breaches = admin_client.read(body, VerifyAnswer, admin_url=admin_url).breaches
    if as_json:
        click.echo(json.dumps(json.loads(body), indent=2))
    elif not breaches:
        click.echo("No breach: the ledger adds up.")
    else:
        click.echo(f"Breaches: {len(breaches)}")
        for breach in breaches:
            click.echo(f"  invariant {breach.invariant}  {breach.subject}  {breach.text}")
    ctx.exit(ExitCode.FOUND if breaches else ExitCode.DONE)
