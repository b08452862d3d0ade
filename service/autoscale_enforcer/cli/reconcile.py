"""`autoscale-enforcer reconcile`: have the whole ledger compared with the cluster now."""

from __future__ import annotations

import time
from datetime import timedelta

import click
import msgspec

from autoscale_enforcer.cli import admin_client, values
from autoscale_enforcer.cli.exit_codes import ExitCode, UnreachableError, exit_code_table
from autoscale_enforcer.cli.order_options import Given, order_options

HELP = """Have the whole ledger compared with the cluster now, and put right.

Any replica may be asked; the leading one compares, as it does by itself every few minutes. The
command waits until that is done. With --dry-run the replica that is asked compares at once and
books nothing: each row that differs is shown, and the exit code is 1 where there is one.

\b
Examples:
  autoscale-enforcer reconcile --dry-run --admin-token-file token
  autoscale-enforcer reconcile --reason "after the restore of etcd, INC-12"

Exit code 3 also means that no replica has compared within --wait; the request stands all the same.
Safe to repeat.
"""

_LOOK_EVERY = 0.5


class Difference(msgspec.Struct, frozen=True):
    """One row that a compare would change."""

    kind: str
    name: str
    ledger: str
    cluster: str


class ReconcileAnswer(msgspec.Struct, frozen=True):
    """The answer of `/api/v1/reconcile` to an order."""

    request: str = "0"
    differences: list[Difference] = []


class Compared(msgspec.Struct, frozen=True):
    """What `/api/v1/reconcile` says of the last compare that was asked for."""

    done: str
    replica: str
    mended: int


@click.command("reconcile", help=HELP, epilog=exit_code_table())
@click.option(
    "--wait",
    metavar="DURATION",
    type=values.duration,
    default="60s",
    show_default=True,
    help="For the leader to have compared; 0 does not wait.",
)
@order_options
@click.pass_context
def reconcile(ctx: click.Context, *, given: Given, wait: timedelta) -> None:
    """Order it, wait, and say how it ended."""
    body = given.send("reconcile")
    answer = admin_client.read(body, ReconcileAnswer, admin_url=given.admin_url)
    if given.dry_run:
        given.show(body, _shown(answer.differences))
        ctx.exit(ExitCode.FOUND if answer.differences else ExitCode.DONE)
    if not wait:
        given.show(body, "Asked: the leader compares at its next turn.")
        return
    given.show(*_wait(given, int(answer.request), wait))


def _wait(given: Given, request: int, wait: timedelta) -> tuple[bytes, str]:
    """The answer, and in words."""
    give_up = time.monotonic() + wait.total_seconds()
    while True:
        body = admin_client.get(given.admin_url, "/api/v1/reconcile")
        found = admin_client.read(body, Compared, admin_url=given.admin_url)
        if int(found.done) >= request:
            return body, f"Compared by {found.replica}; rows that had to be mended: {found.mended}."
        if time.monotonic() >= give_up:
            raise UnreachableError("no replica has compared yet: does one lead? The request stands")
        time.sleep(_LOOK_EVERY)


def _shown(differences: list[Difference]) -> str:
    if not differences:
        return "No difference: the ledger says what the cluster says."
    lines = (f"  {d.kind} {d.name}: ledger {d.ledger}; cluster {d.cluster}" for d in differences)
    return "\n".join([f"Rows that a compare would change: {len(differences)}", *lines])
