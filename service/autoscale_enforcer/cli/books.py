"""Opens the ledger itself, for the commands that go past the service to its Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from autoscale_enforcer.api.replica import ledger_settings
from autoscale_enforcer.config.settings import Settings
from autoscale_enforcer.ledger.ledger import Ledger


@asynccontextmanager
async def open_books(settings: Settings) -> AsyncIterator[Ledger]:
    """The ledger behind these settings. Raises ConfigError where they cannot be used."""
    # What can still be saved of a ledger is not refused for how its server is set up.
    ledger = Ledger.open(replace(ledger_settings(settings), checks_server=False))
    try:
        yield ledger
    finally:
        await ledger.close()
