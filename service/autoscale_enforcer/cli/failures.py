"""Turns the errors of the layers below into the exit codes of the table, at one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autoscale_enforcer.cli.exit_codes import RefusedError, UnreachableError, WrongUseError
from autoscale_enforcer.errors import (
    ClusterUnavailable,
    ConfigError,
    LedgerUnavailable,
    ObjectError,
    ServiceError,
)


@contextmanager
def exit_codes() -> Iterator[None]:
    """End the command with the code that fits, should one of our errors come out of the block."""
    try:
        yield
    except ConfigError as error:
        raise WrongUseError(problem_lines(error.problems)) from error
    except ObjectError as error:
        raise WrongUseError(str(error)) from error
    except (LedgerUnavailable, ClusterUnavailable) as error:
        raise UnreachableError(str(error)) from error
    except ServiceError as error:
        raise RefusedError(str(error)) from error


def problem_lines(problems: list[str]) -> str:
    """One problem as it is; several on a line each, below a heading."""
    if len(problems) == 1:
        return problems[0]
    return "\n  ".join([f"{len(problems)} problems:", *problems])
