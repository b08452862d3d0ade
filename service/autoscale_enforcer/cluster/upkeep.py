"""What a leader does to keep the ledger at what the cluster says, and how from lists alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from itertools import islice
from typing import Protocol

from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Fact

_CHUNK = 500
"""Facts under way at once, so that a build does not make other calls wait for its own."""


class LostLead(Exception):
    """Another replica leads now: stop what only a leader may do."""


class ClusterWentBack(Exception):
    """The cluster is older than what was booked of it, as after a restore: the ledger is to be
    built anew, for it refuses whatever is older than what it knows.
    """


class Upkeep(Protocol):
    """How facts get into the ledger. Every method raises LostLead, LedgerUnavailable or
    ClusterUnavailable; `compare` and `check` also ClusterWentBack.
    """

    async def reach(self) -> None:
        """Prove that this replica can list the cluster: one that cannot must not lead."""
        ...

    async def build(self, leader: Leadership) -> None:
        """Load everything that the cluster has beside the books."""
        ...

    def go_live(self, leader: Leadership) -> None:
        """What was built is the ledger now: go on with it."""
        ...

    async def compare(self, leader: Leadership) -> None:
        """Make the ledger say what the cluster says now, and follow it from here on."""
        ...

    def is_due(self) -> bool:
        """Another compare is wanted."""
        ...

    def check(self) -> None:
        """Raises where what follows the cluster has failed."""
        ...

    def readings(self) -> dict[str, float]:
        """For metrics: how well the cluster is followed, by name."""
        ...

    async def stop(self) -> None:
        """It is no longer ours to do."""
        ...


class ListUpkeep:
    """For a cluster that does not change by itself: everything in it, put again when asked."""

    def __init__(self, ledger: Ledger, source: ClusterSource, config: LiveConfig) -> None:
        self._ledger, self._source, self._config = ledger, source, config

    async def reach(self) -> None:
        """The file is here."""

    async def build(self, leader: Leadership) -> None:
        """Every node, then every pod."""
        await self._put_all(leader)

    def go_live(self, leader: Leadership) -> None:
        """Nothing goes on."""

    async def compare(self, leader: Leadership) -> None:
        """The same facts again: what they say already is not changed."""
        await self._put_all(leader)

    def is_due(self) -> bool:
        """Never: the file does not change."""
        return False

    def check(self) -> None:
        """Nothing can have failed."""

    def readings(self) -> dict[str, float]:
        """Nothing is followed."""
        return {}

    async def stop(self) -> None:
        """Nothing to stop."""

    async def _put_all(self, leader: Leadership) -> None:
        nodes, pods = await self._source.list_nodes(), await self._source.list_pods()
        config = self._config.current
        await self._in_chunks(
            self._ledger.put_node(
                node,
                capacity=config.node_config(node.name).capacity(node.allocatable),
                config_version=self._config.version,
                leader=leader,
            )
            for node in nodes
        )
        await self._in_chunks(
            self._ledger.put_pod(
                pod, leader=leader, ignored=pod.namespace in config.ignored_namespaces
            )
            for pod in pods
        )

    @staticmethod
    async def _in_chunks(facts: Iterable[Awaitable[Fact]]) -> None:
        waiting = iter(facts)
        while chunk := list(islice(waiting, _CHUNK)):
            if Fact.FENCED in await asyncio.gather(*chunk):
                raise LostLead
