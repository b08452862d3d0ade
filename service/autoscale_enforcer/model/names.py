"""What may be a name or a UID in the ledger, in one place.

Rows are values separated by spaces, and a pod is found by `namespace/name`: a name with a space, a
line break or a slash in it would be read back as something else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NO_NAME = "-"
"""Stands in rows where there is none."""

MAX_NAME_CHARACTERS = 253
"""Kubernetes' own limit (a DNS subdomain), for nodes, namespaces and pods."""

MAX_UID_CHARACTERS = 128
"""Kubernetes' UIDs have 36 (a static pod's 32); the API server sets no limit of its own."""

MAX_VERSION_DIGITS = 20
"""Of a resourceVersion: the API server's are unsigned 64-bit numbers."""

_VERSION = re.compile(rf"0|[1-9][0-9]{{0,{MAX_VERSION_DIGITS - 1}}}")


def name_problem(text: str) -> str:
    """Why `text` can be no name of a node, a namespace or a pod; empty where it can."""
    return _problem(text, MAX_NAME_CHARACTERS) or (
        "must not contain a slash" if "/" in text else ""
    )


def uid_problem(text: str) -> str:
    """Why `text` can be no UID; empty where it can."""
    return _problem(text, MAX_UID_CHARACTERS)


def version_problem(text: str) -> str:
    """Why `text` can be no resourceVersion; empty where it can.

    The ledger compares them as decimal numbers, by length and then as text.
    """
    if _VERSION.fullmatch(text):
        return ""
    return f"must be a whole number of at most {MAX_VERSION_DIGITS} digits"


def first_bad_name(names: Sequence[str]) -> tuple[int, str] | None:
    """Position of the first that can be no name, with the reason; None where all can.

    Thousands of node names come with every filter: the usual case, all good, is found without a
    look at each.
    """
    lengths = set(map(len, names))
    if (
        max(lengths, default=1) <= MAX_NAME_CHARACTERS
        and 0 not in lengths
        and (1 not in lengths or NO_NAME not in names)
        and _may_be_named("".join(names))
    ):
        return None
    problems = ((index, name_problem(name)) for index, name in enumerate(names))
    return next(((index, problem) for index, problem in problems if problem), None)


_GOOD_ASCII = bytes(
    code for code in range(128) if chr(code).isprintable() and chr(code) not in " /"
)


def _may_be_named(text: str) -> bool:
    """No character of it is one that names must not have."""
    if text.isascii():
        # What `isprintable` says of each, several times as fast.
        return not text.encode().translate(None, delete=_GOOD_ASCII)
    return text.isprintable() and " " not in text and "/" not in text


def _problem(text: str, limit: int) -> str:
    if not text:
        return "must not be empty"
    if text == NO_NAME:
        return "must be more than a dash"
    if len(text) > limit:
        return f"must have at most {limit} characters"
    if " " in text or not text.isprintable():
        return "must not contain spaces or characters that cannot be printed"
    return ""
