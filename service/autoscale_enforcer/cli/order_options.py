"""What the commands that change something share: the token, who orders it and why, the dry run."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from autoscale_enforcer.cli import admin_client
from autoscale_enforcer.cli.exit_codes import WrongUseError
from autoscale_enforcer.cli.options import admin_option, json_option
from autoscale_enforcer.config.settings import read_token
from autoscale_enforcer.errors import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The options that every order has."""

    admin_url: str
    token_file: Path | None
    reason: str
    who: str
    dry_run: bool
    as_json: bool

    def send(self, order: str, **about: str | None) -> bytes:
        """The answer to the order. Raises WrongUseError before anything is sent where it cannot be.

        Else raises as `admin_client` does.
        """
        if not (self.reason.strip() or self.dry_run):
            raise WrongUseError("--reason is needed, but for a --dry-run: the journal keeps it")
        document = {
            "who": self.who,
            "why": self.reason,
            "dryRun": self.dry_run,
            **{name: value for name, value in about.items() if value is not None},
        }
        return admin_client.post(self.admin_url, f"/api/v1/{order}", document, token=self._token())

    def show(self, body: bytes, words: str) -> None:
        """The answer, in words or as it came."""
        click.echo(json.dumps(json.loads(body), indent=2) if self.as_json else words)

    def _token(self) -> str:
        if self.token_file is None:
            raise WrongUseError(
                "--admin-token-file is needed: the file with the token that the service was "
                "started with"
            )
        try:
            return read_token(self.token_file).reveal()
        except ConfigError as error:
            raise WrongUseError(f"--admin-token-file: {error}") from error


def order_options(command: Command) -> Command:
    """The options of an order; the command is handed them as `given`."""
    options = (
        admin_option,
        click.option(
            "--admin-token-file",
            "token_file",
            envvar="AE_ADMIN_TOKEN_FILE",
            type=_FILE,
            metavar="FILE",
            help="Holds the token of the service's own --admin-token-file.",
        ),
        click.option("--reason", metavar="TEXT", default="", help="Why; kept in the journal."),
        click.option(
            "--as",
            "who",
            envvar="AE_AS",
            metavar="WHO",
            default=_whoami,
            help="Who orders it, for the journal; your user and host unless given.",
        ),
        click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing."),
        json_option,
    )

    def run(**values: Any) -> Any:
        names = Given.__dataclass_fields__
        given = Given(**{name: values.pop(name) for name in names})
        return command(given=given, **values)

    run.__doc__ = command.__doc__
    for option in reversed(options):
        run = option(run)
    return run  # type: ignore[return-value]  # the same command, its options gathered


def _whoami() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
