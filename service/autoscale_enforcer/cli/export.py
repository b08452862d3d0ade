"""`autoscale-enforcer export`: the whole ledger as one file."""

from __future__ import annotations

import asyncio
from typing import Any, BinaryIO

import click

from autoscale_enforcer.cli.books import open_books
from autoscale_enforcer.cli.exit_codes import RefusedError, WrongUseError, exit_code_table
from autoscale_enforcer.cli.failures import exit_codes
from autoscale_enforcer.cli.options import REDIS_FLAGS, settings_from, settings_options
from autoscale_enforcer.config.settings import Settings
from autoscale_enforcer.ledger.transfer import export_books

HELP = """Write the whole ledger to a file.

FILE is written in msgpack while replicas run, and adds up whatever they change meanwhile; - writes
to stdout. Use it before moving to another Redis, or to look at the books of a cluster elsewhere:
`import` takes it.

\b
Examples:
  autoscale-enforcer export books.msgpack --redis-url redis://127.0.0.1:6379/0
  autoscale-enforcer export - | gzip > books.msgpack.gz

Exit code 4 means that there are no books to be exported.
"""


@click.command("export", help=HELP, epilog=exit_code_table())
@click.argument("file", type=click.File("wb", lazy=True))
@settings_options(REDIS_FLAGS)
def export(*, file: BinaryIO, **given: Any) -> None:
    """Read all of it, then write the file, so that none is left that holds half."""
    settings = settings_from(given, REDIS_FLAGS)
    with exit_codes():
        content = asyncio.run(_content(settings))
    try:
        file.write(content)
    except (click.FileError, OSError) as error:
        reason = error.message if isinstance(error, click.FileError) else error.strerror
        raise WrongUseError(f"{file.name}: cannot be written: {reason}") from error
    click.echo(f"{file.name}: {len(content)} bytes, from {settings.redis.shown_url}.", err=True)


async def _content(settings: Settings) -> bytes:
    async with open_books(settings) as ledger:
        if (await ledger.look()).state == "UNBUILT":
            raise RefusedError(
                f"there are no books of {settings.redis.cluster_name} in {settings.redis.shown_url}"
            )
        return await export_books(ledger)
