"""Replicas over the fake API server."""

from __future__ import annotations

from tests.support.live_fixtures import api, live, start_live

__all__ = ["api", "live", "start_live"]
