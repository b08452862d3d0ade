"""Names, UIDs and versions of objects, checked where facts are made.

The ledger's rows are values separated by spaces: what is not checked here would be read back as
something else.
"""

from __future__ import annotations

from collections.abc import Callable

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.names import version_problem
from autoscale_enforcer.objects.shapes import Metadata


def checked(path: str, value: str | None, problem_of: Callable[[str], str]) -> str:
    """The value; raises ObjectError where it is absent or empty, or has a problem."""
    if not value:
        raise ObjectError(path, "missing")
    if problem := problem_of(value):
        raise ObjectError(path, problem)
    return value


def version_of(metadata: Metadata) -> str:
    """The object's resourceVersion, empty where it has none; raises ObjectError."""
    found = metadata.resource_version
    return checked("metadata.resourceVersion", found, version_problem) if found else ""
