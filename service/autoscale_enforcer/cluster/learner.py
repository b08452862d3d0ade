"""Nodes and pods that a request names and the ledger does not know: one live read, not again too
soon.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from autoscale_enforcer.cluster.single_flight import SingleFlight
from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName, PodName

FORGET_AFTER = 5.0
"""Seconds for which "there is no such node", or no bound pod of that name, is believed."""

AT_ONCE = 16
"""Nodes read for one request; the watch brings the others."""

PATIENCE = 1.0
"""Seconds that a filter waits for such reads: a fifth of what kube-scheduler gives it."""


class NodeLearner:
    """Reads unknown nodes, each once however many ask."""

    def __init__(self, ledger: Ledger, source: ClusterSource, config: LiveConfig) -> None:
        self._ledger, self._source, self._config = ledger, source, config
        self._reads = SingleFlight("learn node", self._read)
        self._asked_at: dict[NodeName, float] = {}

    async def learn(self, names: Iterable[NodeName]) -> None:
        """Make nodes known that the mirror lacks; gives up in silence, for the watch goes on."""
        rooms = self._ledger.mirror.rooms
        now = time.monotonic()
        unknown = [
            name
            for name in names
            if name not in rooms and now - self._asked_at.get(name, -FORGET_AFTER) >= FORGET_AFTER
        ][:AT_ONCE]
        if not unknown:
            return
        self._asked_at = {n: t for n, t in self._asked_at.items() if now - t < FORGET_AFTER}
        await asyncio.wait([self._reads.task(name) for name in unknown], timeout=PATIENCE)
        await self._ledger.mirror.refresh()

    async def close(self) -> None:
        """End what is under way."""
        await self._reads.close()

    async def _read(self, name: NodeName) -> None:
        try:
            fact = await self._source.read_node(name)
            self._asked_at[name] = time.monotonic()
            if fact is None:
                return
            config = self._config.current
            # Its pods first: until the capacity is booked, nothing is placed there.
            for pod in await self._source.facts_on(name):
                if not pod.finished:
                    ignored = pod.namespace in config.ignored_namespaces
                    await self._ledger.put_pod(pod, leader=None, ignored=ignored)
            await self._ledger.put_node(
                fact,
                capacity=config.node_config(name).capacity(fact.allocatable),
                config_version=self._config.version,
                leader=None,
            )
        except (ClusterUnavailable, LedgerUnavailable):
            return


class PodLearner:
    """Reads bound pods whose events are late, each once however many ask."""

    def __init__(self, ledger: Ledger, source: ClusterSource, config: LiveConfig) -> None:
        self._ledger, self._source, self._config = ledger, source, config
        self._reads = SingleFlight("learn pod", self._read)
        self._missing_at: dict[PodName, float] = {}

    async def learn(self, name: PodName) -> PodFact | None:
        """The pod that is bound under that name, in the ledger by now; None: there is none.

        Safe to repeat. Raises ClusterUnavailable and LedgerUnavailable.
        """
        if time.monotonic() - self._missing_at.get(name, -FORGET_AFTER) < FORGET_AFTER:
            return None
        # Shielded: who gives up must not take the answer from the others.
        return await asyncio.shield(self._reads.task(name))

    async def close(self) -> None:
        """End what is under way."""
        await self._reads.close()

    async def _read(self, name: PodName) -> PodFact | None:
        fact = await self._source.read_pod(name)
        if fact is None or fact.node is None or fact.finished:
            now = time.monotonic()
            known = self._missing_at.items()
            self._missing_at = {n: t for n, t in known if now - t < FORGET_AFTER} | {name: now}
            return None
        ignored = fact.namespace in self._config.current.ignored_namespaces
        await self._ledger.put_pod(fact, leader=None, ignored=ignored)
        return fact
