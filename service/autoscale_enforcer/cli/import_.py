"""`autoscale-enforcer import`: an exported ledger back into Redis."""

from __future__ import annotations

import asyncio
import json
from typing import Any, BinaryIO

import click

from autoscale_enforcer.cli.books import open_books
from autoscale_enforcer.cli.exit_codes import exit_code_table
from autoscale_enforcer.cli.failures import exit_codes
from autoscale_enforcer.cli.options import (
    REDIS_FLAGS,
    json_option,
    settings_from,
    settings_options,
)
from autoscale_enforcer.config.settings import Settings
from autoscale_enforcer.ledger.transfer import ImportSummary, import_books

HELP = """Put an exported ledger into Redis.

FILE is what `export` wrote; - reads stdin. Stop the replicas first. The file is checked whole
before anything is written, and takes its place in one step. Until the next leading replica has
compared it with the cluster, nothing is granted on its word alone; holds in it have lapsed.

\b
Examples:
  autoscale-enforcer import books.msgpack --redis-url redis://127.0.0.1:6379/0
  autoscale-enforcer import books.msgpack --replace

Exit code 4 means that nothing was changed: a replica runs, there are books already and --replace
was not given, or the file does not add up.
"""


@click.command("import", help=HELP, epilog=exit_code_table())
@click.argument("file", type=click.File("rb"))
@click.option("--replace", is_flag=True, help="Take the place of books that are there.")
@settings_options(REDIS_FLAGS)
@json_option
def import_(*, file: BinaryIO, replace: bool, as_json: bool, **given: Any) -> None:
    """Read the file, put it in, and say what it held."""
    settings = settings_from(given, REDIS_FLAGS)
    with exit_codes():
        summary = asyncio.run(_import(settings, file.read(), replace=replace))
    if as_json:
        click.echo(json.dumps({"nodes": summary.nodes, "pods": summary.pods}))
    else:
        click.echo(f"Imported {summary.nodes} nodes and {summary.pods} pods.")


async def _import(settings: Settings, content: bytes, *, replace: bool) -> ImportSummary:
    async with open_books(settings) as ledger:
        return await import_books(ledger, content, replace=replace)
