"""The ledger as everybody else uses it: one typed method for each script.

Every method raises LedgerUnavailable where no answer came or no books are built; a change may
then be in the books all the same, and asking again with the same stamp is safe.
"""

from __future__ import annotations

from autoscale_enforcer.ledger.calls import LedgerSettings
from autoscale_enforcer.ledger.connection import connector
from autoscale_enforcer.ledger.facts import Facts
from autoscale_enforcer.ledger.holds import Holds
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.leading import Leading
from autoscale_enforcer.ledger.orders import Orders
from autoscale_enforcer.ledger.pipeline import Pipeline
from autoscale_enforcer.ledger.reads import Reads
from autoscale_enforcer.ledger.scripts import load_scripts


class Ledger(Holds, Facts, Reads, Leading, Orders):
    """The reservations of one Kubernetes cluster. Safe to use from any number of tasks."""

    @classmethod
    def open(cls, settings: LedgerSettings) -> Ledger:
        """A ledger that begins to connect when it is first asked. `close` it after use."""
        keys = Keys(settings.cluster)
        pipeline = Pipeline(
            connector(settings.connection, slot_key=keys.key("nodes")),
            keys,
            load_scripts(),
            journal_length=settings.journal_length,
            call_budget=settings.call_budget,
            waiting=settings.waiting,
            checks_server=settings.checks_server,
        )
        ledger = cls(settings, pipeline)
        pipeline.exchange.on_loss = ledger.note_loss
        pipeline.start()
        return ledger

    async def close(self) -> None:
        """End every connection; calls still waiting end as LedgerUnavailable."""
        await self.pipeline.close()
