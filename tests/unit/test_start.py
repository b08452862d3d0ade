"""What a replica begins with, and what it says while it cannot begin."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from autoscale_enforcer.api.replica import _until_built, ledger_settings
from autoscale_enforcer.config.settings import ReplicaSettings, Settings
from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.exchange import Guard

BUILT = Guard(state="SETTLED", epoch="e", version=1, settle_ms=0)


@dataclass
class Away:
    """A ledger that cannot be reached for a while."""

    answers: list[str | Guard] = field(default_factory=list)

    async def look(self) -> Guard:
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            raise LedgerUnavailable(answer)
        return answer


async def test_what_is_waited_for_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Ten lines a second hid everything else in the log."""
    ledger = Away(["refused", "refused", "refused", "too slow", BUILT])

    await _until_built(ledger)  # type: ignore[arg-type]

    assert [record.getMessage() for record in caplog.records] == [
        "waiting for Redis: refused",
        "waiting for Redis: too slow",
    ]


@pytest.mark.parametrize(
    ("cluster", "are_whole"), [("kubernetes", False), ("file:cluster.json", True)]
)
def test_facts_are_kept_whole_where_the_ledger_is_the_shared_copy(
    cluster: str,
    are_whole: bool,
) -> None:
    settings = Settings(replica=ReplicaSettings(cluster=cluster))

    assert ledger_settings(settings).keeps_whole_facts is are_whole
