"""`autoscale-enforcer freeze` and `thaw`: grants stop, grants go on."""

from __future__ import annotations

import click
import msgspec

from autoscale_enforcer.cli import admin_client
from autoscale_enforcer.cli.exit_codes import exit_code_table
from autoscale_enforcer.cli.node_table import Freeze
from autoscale_enforcer.cli.order_options import Given, order_options

FREEZE_HELP = """Stop grants, on one node or everywhere.

While frozen nothing new is reserved and no VM grows, at whichever replica. All else goes on: VMs
shrink, pods that have their room are bound, facts of the cluster are booked, room is freed. A
freeze outlasts replicas and a ledger that is built anew; it is lost only with Redis itself.
`status` shows it, with who froze and why.

\b
Examples:
  autoscale-enforcer freeze --reason "sums look wrong, INC-12" --admin-token-file token
  autoscale-enforcer freeze --node n7 --reason "disk fails" --dry-run

Safe to repeat: the first freeze stands, with its reason.
"""

THAW_HELP = """Let grants go on, on one node or where all were stopped.

Without --node the freeze of everything ends; nodes that were frozen one by one stay so, and are
named. Pods that wait for room are tried again at once.

\b
Examples:
  autoscale-enforcer thaw --reason "INC-12 is over" --admin-token-file token
  autoscale-enforcer thaw --node n7 --reason "new disk"

Safe to repeat.
"""


class FreezeAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of `/api/v1/freeze` and `/api/v1/thaw`."""

    outcome: str
    freeze: Freeze | None = None
    still_frozen: list[Freeze] = []


node_option = click.option("--node", metavar="NAME", help="One node; else everything.")


@click.command("freeze", help=FREEZE_HELP, epilog=exit_code_table())
@node_option
@order_options
def freeze(*, given: Given, node: str | None) -> None:
    """Order it, and say what holds now."""
    body = given.send("freeze", node=node)
    answer = admin_client.read(body, FreezeAnswer, admin_url=given.admin_url)
    if answer.outcome == "ALREADY" and answer.freeze:
        words = f"Frozen already: {answer.freeze.words}"
    else:
        words = f"Grants {'would stop' if given.dry_run else 'are stopped'}: {_where(node)}."
    given.show(body, words)


@click.command("thaw", help=THAW_HELP, epilog=exit_code_table())
@node_option
@order_options
def thaw(*, given: Given, node: str | None) -> None:
    """Order it, and say what holds now."""
    body = given.send("thaw", node=node)
    answer = admin_client.read(body, FreezeAnswer, admin_url=given.admin_url)
    if answer.freeze:
        verb = "would end" if given.dry_run else "has ended"
        lines = [f"This freeze {verb}: {answer.freeze.words}"]
    else:
        lines = [f"There is no freeze of {_where(node)}."]
    lines += [f"Still frozen: {each.words}" for each in answer.still_frozen]
    given.show(body, "\n".join(lines))


def _where(node: str | None) -> str:
    return f"node {node}" if node is not None else "everything"
