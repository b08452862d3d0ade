"""Settles tentative holds past their deadline: by a live read, never by the clock alone."""

from __future__ import annotations

import logging

from autoscale_enforcer.cluster.binder import Binder, BindOrder
from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.errors import ClusterUnavailable
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import PodRow, Stage

log = logging.getLogger(__name__)

READ_ONE_BY_ONE = 100
"""Up to so many holds are settled by a read each; for more, one list is read."""

SWEEP_LIMIT = 5_000
"""Holds settled in one sweep; the next takes the rest."""


class Sweeper:
    """Settles what others have left behind."""

    def __init__(
        self, ledger: Ledger, source: ClusterSource, binder: Binder, *, replica: str
    ) -> None:
        self._ledger, self._source, self._binder = ledger, source, binder
        self._replica = replica

    async def sweep(self) -> None:
        """One sweep; a hold whose pod cannot be read stays as it is."""
        lapsed = await self._ledger.find_lapsed(limit=SWEEP_LIMIT)
        listed: dict[PodName, PodFact | None] | None = None
        if len(lapsed.pods) > READ_ONE_BY_ONE:
            # Begun after the deadlines, so it is as good as a read of each.
            listed = await self._source.read_pods({PodName(row.name) for _, row in lapsed.pods})
        for uid, row in lapsed.pods:
            order = BindOrder(
                uid=uid,
                name=PodName(row.name),
                node=NodeName(row.node),
                stamp=lapsed.stamp,
                context={"replica": self._replica, "verb": "sweep"},
            )
            try:
                await self._settle(order, row, listed)
            except ClusterUnavailable as error:
                log.warning("sweep: %s stays %s: %s", row.name, row.stage, error)

    async def _settle(
        self, order: BindOrder, row: PodRow, listed: dict[PodName, PodFact | None] | None
    ) -> None:
        if listed is None:
            fact = await self._source.read_pod(order.name)
        elif order.name in listed:
            fact = listed[order.name]
        else:
            raise ClusterUnavailable("the pod cannot be read")
        if row.stage == Stage.BINDING:
            await self._binder.settle(order, fact)
        elif fact and _is_bound(fact, order.uid):
            node = fact.node or order.node
            await self._ledger.confirm_bind(order.uid, node=node, context=order.context)
        else:
            await self._ledger.unreserve_pod(
                order.uid, node=order.node, stamp=order.stamp, context=order.context
            )


def _is_bound(fact: PodFact, uid: PodUid) -> bool:
    return fact.uid == uid and fact.node is not None and not fact.finished
