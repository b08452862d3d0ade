"""The same replica and cluster as in `tests/routes`."""

from __future__ import annotations

from tests.routes.conftest import cluster, orphan, replica, start

__all__ = ["cluster", "orphan", "replica", "start"]
