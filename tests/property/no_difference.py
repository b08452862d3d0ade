"""Mutants that change nothing which anybody may rely on: each with the reason why.

A mutant that is caught must not be listed; one that is not caught and not listed fails the test.
"""

from __future__ import annotations

TWICE_IS_ONCE = "the same command again finds its work done"
VERSIONS_RISE = "a version has to rise, by how much is nobody's business"

NO_DIFFERENCE: dict[str, str] = {}
