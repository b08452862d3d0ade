"""The exit codes of every command, and the errors that end a command with one of them.

Code 1 is a result, not an error: a command that found something prints it and calls `ctx.exit`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

import click


class ExitCode(IntEnum):
    """How a command ended, for scripts; each member carries the words its `--help` shows."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """A code with its meaning."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    DONE = 0, "done"
    FOUND = 1, "the check found something"
    WRONG_USE = 2, "wrong use: an option, argument or file that cannot be used"
    UNREACHABLE = 3, "the service cannot be reached"
    REFUSED = 4, "refused by the service"


class WrongUseError(click.ClickException):
    """An option, argument or file cannot be used; the words go to stderr."""

    exit_code = ExitCode.WRONG_USE


class UnreachableError(click.ClickException):
    """The service, or what it needs, cannot be reached; the words name the address."""

    exit_code = ExitCode.UNREACHABLE


class RefusedError(click.ClickException):
    """The service answered, and said no."""

    exit_code = ExitCode.REFUSED


def exit_code_table() -> str:
    """The table that `--help` shows, fenced off from click's own wrapping of lines."""
    rows = (f"  {code.value}  {code.meaning}" for code in ExitCode)
    return "\b\nExit codes:\n" + "\n".join(rows)
