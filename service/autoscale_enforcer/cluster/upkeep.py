"""What a leader does to keep the ledger at what the cluster says, and how from lists alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Iterable
from itertools import islice
from typing import Protocol

from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.ledger.calls import Context, Leadership
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Fact, Recount
from autoscale_enforcer.ledger.verify import has_wrong_sums
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.rows import NodeRow, PodRow
from autoscale_enforcer.turns import FullCollections, Turns

log = logging.getLogger(__name__)

OnNode = dict[str, dict[PodUid, PodRow]]
"""Pods by the node on which they hold something."""

_CHUNK = 500
"""Facts under way at once, so that a build does not make other calls wait for its own."""


class LostLead(Exception):
    """Another replica leads now: stop what only a leader may do."""


class ClusterWentBack(Exception):
    """The cluster is older than what was booked of it, as after a restore: the ledger is to be
    built anew, for it refuses whatever is older than what it knows.
    """


class BooksIncomplete(Exception):
    """The server has thrown away a part of the books: they are to be built anew, for what else is
    gone nobody knows.
    """


class Upkeep(Protocol):
    """How facts get into the ledger. Every method raises LostLead, LedgerUnavailable or
    ClusterUnavailable; `compare` also BooksIncomplete and, like `check`, ClusterWentBack.
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


async def recount(ledger: Ledger, leader: Leadership, *, context: Context) -> int:
    """Put right every node whose sums are not those of its pods; how many there were.

    One that changes meanwhile is looked at by the next compare. Raises LostLead and
    LedgerUnavailable, and BooksIncomplete where the lists beside the rows lack some.
    """
    found = 0
    rows, on_node = await _read(ledger)
    await _check_lists(ledger, rows, on_node)
    async for name, row, pods in _wrong(rows, on_node):
        answer = await ledger.recount_node(
            name, version=row.version, uids=pods, leader=leader, context=context
        )
        if answer is Recount.FENCED:
            raise LostLead
        if answer is Recount.RECOUNTED:
            log.warning("the sums of node %s were not those of its pods", name)
            found += 1
    return found


async def wrong_sums(
    ledger: Ledger,
) -> AsyncIterator[tuple[NodeName, NodeRow, dict[PodUid, PodRow]]]:
    """Nodes whose sums seem not to be those of their pods, with those pods."""
    async for each in _wrong(*await _read(ledger)):
        yield each


async def _read(ledger: Ledger) -> tuple[dict[NodeName, NodeRow], OnNode]:
    """The nodes, and then the pods that hold something there."""
    rows = await ledger.read_nodes()
    with FullCollections.held_off():
        return rows, await _by_node(await ledger.scan_pods())


async def _wrong(
    rows: dict[NodeName, NodeRow], on_node: OnNode
) -> AsyncIterator[tuple[NodeName, NodeRow, dict[PodUid, PodRow]]]:
    turns = Turns()
    for name, row in rows.items():
        pods = on_node.pop(name, {})
        if has_wrong_sums(name, row, pods):
            yield name, row, pods
        await turns.pause()


async def _check_lists(ledger: Ledger, rows: dict[NodeName, NodeRow], on_node: OnNode) -> None:
    """Raises BooksIncomplete where a list beside the rows lacks some of these."""
    names, uids, turns = list(rows), list[PodUid](), Turns()
    for pods in on_node.values():
        uids += [uid for uid, row in pods.items() if row.is_tentative]
        await turns.pause()
    for start in range(0, max(len(names), len(uids)), _CHUNK):
        portion = slice(start, start + _CHUNK)
        lacking = await ledger.find_unlisted(nodes=names[portion], uids=uids[portion])
        if lacking:
            raise BooksIncomplete(f"{', '.join(lacking)} of the ledger: does Redis evict keys?")


async def _by_node(pods: dict[PodUid, PodRow]) -> OnNode:
    """The pods that hold something, by the node they hold it on; `pods` is emptied."""
    on_node, turns = OnNode(), Turns()
    while pods:
        uid, row = pods.popitem()
        if row.holds:
            on_node.setdefault(row.node, {})[uid] = row
        await turns.pause()
    return on_node


class ListUpkeep:
    """For a cluster that does not change by itself: everything in it, put again when asked."""

    def __init__(self, ledger: Ledger, source: ClusterSource, config: LiveConfig) -> None:
        self._ledger, self._source, self._config = ledger, source, config
        self._recounted = 0

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
        self._recounted += await recount(self._ledger, leader, context={"verb": "compare"})

    def is_due(self) -> bool:
        """Never: the file does not change."""
        return False

    def check(self) -> None:
        """Nothing can have failed."""

    def readings(self) -> dict[str, float]:
        """Nothing is followed; nodes whose sums were put right."""
        return {"repaired_rows": self._recounted}

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
