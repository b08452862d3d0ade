"""`autoscale-enforcer release`: give up what one pod holds and does not use."""

from __future__ import annotations

import click
import msgspec

from autoscale_enforcer.cli import admin_client, values
from autoscale_enforcer.cli.exit_codes import exit_code_table
from autoscale_enforcer.cli.node_table import show_cpu_amount, show_memory_amount
from autoscale_enforcer.cli.order_options import Given, order_options

HELP = """Give up what one pod holds and does not use.

POD is NAMESPACE/NAME. The service reads the pod from the cluster at that moment, and frees its room
only where that proves it to be free: the pod is gone or finished, or it is not bound and no Binding
can bind it any more. Whatever is bound and not finished keeps its room. Holds that nobody
uses are found by the service itself, within a minute; this is for whoever cannot wait.

\b
Examples:
  autoscale-enforcer release default/web-0 --dry-run --admin-token-file token
  autoscale-enforcer release default/web-0 --reason "stuck since the crash, INC-12"

Exit code 4 means that nothing was released: the pod uses its room, is not known, or cannot be read.
Safe to repeat.
"""


class Held(msgspec.Struct, frozen=True, rename="camel"):
    """What the pod held."""

    node: str
    stage: str
    cpu_milli: int
    memory_bytes: int


class ReleaseAnswer(msgspec.Struct, frozen=True):
    """The answer of `/api/v1/release`."""

    outcome: str
    why: str
    held: Held | None = None


@click.command("release", help=HELP, epilog=exit_code_table())
@click.argument("pod", type=values.pod)
@order_options
def release(*, given: Given, pod: str) -> None:
    """Order it, and say what is free now."""
    body = given.send("release", pod=pod)
    answer = admin_client.read(body, ReleaseAnswer, admin_url=given.admin_url)
    given.show(body, _words(answer, pod, dry_run=given.dry_run))


def _words(answer: ReleaseAnswer, pod: str, *, dry_run: bool) -> str:
    if answer.held is None:
        return f"Pod {pod}: {answer.why}."
    held, verb = answer.held, "would be" if dry_run else "is"
    amount = f"{show_cpu_amount(held.cpu_milli)} and {show_memory_amount(held.memory_bytes)}"
    return f"Pod {pod}: {amount} on {held.node} ({held.stage}) {verb} free, for {answer.why}."
