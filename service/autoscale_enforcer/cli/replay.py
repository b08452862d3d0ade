"""`autoscale-enforcer replay`: recorded traffic in, a table and an exit code out."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import click

from autoscale_enforcer.cli.exit_codes import (
    ExitCode,
    UnreachableError,
    WrongUseError,
    exit_code_table,
)
from autoscale_enforcer.errors import ServiceError
from autoscale_enforcer.replay import report
from autoscale_enforcer.replay.cluster_file import cluster_file
from autoscale_enforcer.replay.player import extender_url, play
from autoscale_enforcer.replay.recording import RecordingError, count_calls, read_calls
from autoscale_enforcer.replay.tally import Tally

HELP = """Send recorded scheduler traffic to a service and judge its answers.

FILE holds one call a line: {"t": seconds, "verb": "filter", "request": the body as it was sent}.
Each call is sent in order, over a new connection, to the extender's address followed by its verb;
t is not waited for. Of every answer it is checked that kube-scheduler could work with it:

\b
  filter      each offered node in exactly one list, Node objects unchanged, no Error
  prioritize  every offered node scored once, whole numbers from 0 to 10
  preempt     offered nodes only, with victims offered for them
  bind        not refused, on a node that the filter before it had passed
  reserve     no trouble of the service; unreserve: never refused

\b
Examples:
  autoscale-enforcer replay names.jsonl --extender http://127.0.0.1:10298/extender
  autoscale-enforcer replay nodes.jsonl --print-cluster > cluster.json

A bad line in FILE is found before anything is sent. Exit code 1 means that there was a
disagreement; 3 that the service could not be reached, or stopped answering on the way.
"""


def _address(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else extender_url(value)
    except ServiceError as error:
        raise click.BadParameter(str(error)) from error


def _duration(_ctx: click.Context, _param: click.Parameter, value: float) -> timedelta:
    try:
        duration = timedelta(seconds=value)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{value} is no number of seconds") from error
    if duration <= timedelta(0):
        raise click.BadParameter("must be more than 0")
    return duration


@click.command("replay", help=HELP, epilog=exit_code_table())
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--extender",
    metavar="URL",
    callback=_address,
    help="The service, like http://127.0.0.1:10298/extender (the default path).",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=float,
    callback=_duration,
    default=10.0,
    show_default=True,
    help="How long one answer may take.",
)
@click.option(
    "--json",
    "as_json",
    envvar="AE_JSON",
    is_flag=True,
    help="Print one JSON document, not a table.",
)
@click.option(
    "--print-cluster",
    is_flag=True,
    help="Send nothing; print a cluster file (a List as kubectl prints it) made from the Node "
    "objects in FILE.",
)
@click.pass_context
def replay(
    ctx: click.Context,
    *,
    file: Path,
    extender: str | None,
    timeout: timedelta,
    as_json: bool,
    print_cluster: bool,
) -> None:
    """Dispatch between sending the recording and printing its cluster."""
    try:
        if print_cluster:
            click.echo(cluster_file(read_calls(file)))
            return
        if extender is None:
            raise click.UsageError("needs --extender URL, or --print-cluster")
        count_calls(file)
        tally = asyncio.run(play(read_calls(file), extender=extender, answer_limit=timeout))
    except RecordingError as error:
        raise WrongUseError(str(error)) from error
    _print(tally, as_json=as_json)
    ctx.exit(_exit_code(tally))


def _print(tally: Tally, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.document(tally), indent=2))
    elif tally.total.calls:
        click.echo(report.table(tally))
    if tally.unreachable is not None:
        raise UnreachableError(tally.unreachable)


def _exit_code(tally: Tally) -> ExitCode:
    return ExitCode.FOUND if tally.disagreement_count else ExitCode.DONE
