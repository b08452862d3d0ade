"""Nodes that a request names and the ledger does not know: one live read, not again too soon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.ids import NodeName

FORGET_AFTER = 5.0
"""Seconds for which "there is no such node" is believed."""

AT_ONCE = 16
"""Nodes read for one request; the watch brings the others."""

PATIENCE = 1.0
"""Seconds that a filter waits for such reads: a fifth of what kube-scheduler gives it."""


class NodeLearner:
    """Reads unknown nodes, each once however many ask."""

    def __init__(self, ledger: Ledger, source: ClusterSource, config: LiveConfig) -> None:
        self._ledger, self._source, self._config = ledger, source, config
        self._under_way: dict[NodeName, asyncio.Task[None]] = {}
        self._asked_at: dict[NodeName, float] = {}

    async def learn(self, names: Iterable[NodeName]) -> None:
        """Make nodes known that the mirror lacks; gives up in silence, for the watch goes on."""
        known = self._ledger.mirror.nodes
        now = time.monotonic()
        unknown = [
            name
            for name in names
            if (name not in known or known[name].absent)
            and now - self._asked_at.get(name, -FORGET_AFTER) >= FORGET_AFTER
        ][:AT_ONCE]
        if not unknown:
            return
        self._asked_at = {n: t for n, t in self._asked_at.items() if now - t < FORGET_AFTER}
        tasks = [self._task(name) for name in unknown]
        await asyncio.wait(tasks, timeout=PATIENCE)
        await self._ledger.mirror.refresh()

    async def close(self) -> None:
        """End what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _task(self, name: NodeName) -> asyncio.Task[None]:
        task = self._under_way.get(name)
        if task is None:
            task = self._under_way[name] = asyncio.create_task(self._read(name), name="learn node")
            task.add_done_callback(lambda _: self._under_way.pop(name, None))
        return task

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
