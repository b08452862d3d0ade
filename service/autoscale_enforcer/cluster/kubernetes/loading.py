"""Loads the first pods of a new ledger: many in one call, those of a node together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from autoscale_enforcer.cluster.upkeep import LostLead
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import PodUid

PORTION = 100
"""Pods in one call: it keeps Redis, and this process, busy for some 3 ms."""

AT_ONCE = 4
"""Calls under way: while Redis has some of them, others are made ready."""


class FirstPods:
    """The pods of the first list, until they are in the ledger."""

    def __init__(self, ledger: Ledger, *, is_ignored: Callable[[PodFact], bool]) -> None:
        self._ledger, self._is_ignored = ledger, is_ignored
        self._waiting: list[PodFact] = []

    def take(self, facts: list[PodFact]) -> None:
        """All there are; none of them has finished. The list is ours from now on."""
        # The rows of a node are read and written once in each call that has pods of it.
        facts.sort(key=lambda fact: fact.node or "")
        self._waiting = facts

    def forget(self) -> None:
        """Nobody loads them any more."""
        self._waiting = []

    def __len__(self) -> int:
        return len(self._waiting)

    async def load(self, leader: Leadership) -> list[PodFact]:
        """Put them beside the books; those that the ledger left out are to be put one by one.

        Raises LostLead and LedgerUnavailable.
        """
        left: list[PodFact] = []
        try:
            await asyncio.gather(*(self._load(leader, left) for _ in range(AT_ONCE)))
        finally:
            self.forget()  # After a failure the others end, too.
        return left

    async def _load(self, leader: Leadership, left: list[PodFact]) -> None:
        while portion := self._waiting[-PORTION:]:
            del self._waiting[-PORTION:]
            named = await self._ledger.load_pods(
                ((fact, self._is_ignored(fact)) for fact in portion), leader=leader
            )
            if named is None:
                raise LostLead
            left += _of(portion, named)


def _of(portion: list[PodFact], uids: list[PodUid]) -> list[PodFact]:
    return [fact for fact in portion if fact.uid in uids] if uids else []
