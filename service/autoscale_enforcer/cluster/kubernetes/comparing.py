"""Finds where the ledger says other than a list of the cluster, and has it put right.

What a list lacks is gone only when a read begun later says so too: it may have been bound while
the list was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

from autoscale_enforcer.cluster.kubernetes.answers import BadObject, BareObject
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.paths import NODES, PODS, node_path, pod_path
from autoscale_enforcer.cluster.upkeep import ClusterWentBack
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import NO_WORD, NodeRow, PodRow, Stage, newer, said_row
from autoscale_enforcer.turns import Turns

READ_ONE_BY_ONE = 100
"""Up to so many missing objects are read each; of more, one list tells."""


class Mends(Protocol):
    """Who tells the ledger what it has to be told. What `is_news` may be on its way already."""

    def mend_pod(self, fact: PodFact, *, is_news: bool) -> None:
        """The pod is so, and the ledger says other."""
        ...

    def mend_deleted_pod(self, uid: PodUid, name: PodName) -> None:
        """The pod is gone, and the ledger has it; this is always news."""
        ...

    def mend_node(self, fact: NodeFact, *, is_news: bool) -> None:
        """The node is so, and the ledger says other."""
        ...

    def mend_deleted_node(self, name: NodeName, uid: str) -> None:
        """The node has left, and the ledger has it; this is always news."""
        ...

    def read_again(self, fact: PodFact) -> PodFact:
        """The pod of a list, as it is by now."""
        ...

    def wait_for_room(self, fact: PodFact) -> None:
        """The pod is known as it is, and may wait for room."""
        ...


class Comparison:
    """Compares lists with the whole ledger. Raises ClusterUnavailable and LedgerUnavailable."""

    def __init__(self, api: KubeApi, ledger: Ledger, config: LiveConfig, mends: Mends) -> None:
        self._api, self._ledger, self._config, self._mends = api, ledger, config, mends

    async def nodes(
        self, listed: Sequence[NodeFact], bad: Sequence[BadObject], version: str
    ) -> None:
        """The nodes are these, and others only if a later read finds them; bad ones stay."""
        rows = await self._ledger.read_nodes()
        await self._check_age((row.rv for row in rows.values()), version, NODES)
        missing = {name: row.uid for name, row in rows.items() if not row.absent}
        turns = Turns()
        for fact in listed:
            missing.pop(fact.name, None)
            row = rows.get(fact.name)
            if row is None or not self._node_says(row, fact):
                is_news = row is None or newer(fact.resource_version, row.rv)
                self._mends.mend_node(fact, is_news=is_news)
            await turns.pause()
        for found in bad:
            name = NodeName(found.name)
            if found.uid in ("", missing.get(name)):  # else a new node has the name
                missing.pop(name, None)
        there = await self._still_there(
            {uid: node_path(name) for name, uid in missing.items()}, all_of=NODES
        )
        for name, uid in missing.items():
            if uid not in there:
                self._mends.mend_deleted_node(name, uid)

    async def pods(self, listed: Sequence[PodFact], bad: Sequence[BadObject], version: str) -> None:
        """The pods are these, and others only if a later read finds them; bad ones stay."""
        rows = await self._ledger.scan_pods()
        await self._check_age((row.rv for row in rows.values()), version, PODS)
        turns = Turns()
        for fact in listed:
            self._compare_pod(rows.pop(fact.uid, None), self._mends.read_again(fact))
            await turns.pause()
        for found in bad:
            rows.pop(PodUid(found.uid), None)
        there = await self._still_there(
            {uid: pod_path(PodName(row.name)) for uid, row in rows.items()}, all_of=PODS
        )
        for uid, row in rows.items():
            if uid not in there:
                self._mends.mend_deleted_pod(uid, PodName(row.name))

    def _compare_pod(self, row: PodRow | None, fact: PodFact) -> None:
        if row is None and fact.finished:
            return
        ignored = fact.namespace in self._config.current.ignored_namespaces
        if row is None or not pod_says(row, fact, ignored=ignored):
            self._mends.mend_pod(fact, is_news=row is None or newer(fact.resource_version, row.rv))
        else:
            self._mends.wait_for_room(fact)

    def _node_says(self, row: NodeRow, fact: NodeFact) -> bool:
        said = (fact.resource_version or NO_WORD, self._config.version or NO_WORD)
        capacity = self._config.current.node_config(fact.name).capacity(fact.allocatable)
        return not row.absent and (row.rv, row.config) == said and row.capacity == capacity

    async def _check_age(self, booked: Iterable[str], listed: str, path: str) -> None:
        """Raises ClusterWentBack where the API now is older than what it was booked with."""
        newest = max(booked, key=lambda rv: (len(rv), rv), default=NO_WORD)
        if not newer(newest, listed):
            return
        # It may have been booked by a read since the list.
        async with aclosing(self._api.list_pages(path, BareObject, limit=1)) as pages:
            async for page in pages:
                if newer(newest, page.resource_version):
                    raise ClusterWentBack(f"{newest} is booked, {path} is at {listed}")
                return

    async def _still_there(self, paths: Mapping[str, str], *, all_of: str) -> set[str]:
        """Which of these UIDs are still in the cluster, readable or not."""
        if len(paths) > READ_ONE_BY_ONE:
            listing = await self._api.list_all(all_of, BareObject)
            there = {item.metadata.uid or "" for item in listing.items if item.metadata}
            return there | {found.uid for found in listing.bad}
        return {uid for uid, path in paths.items() if await self._has_uid(path, uid)}

    async def _has_uid(self, path: str, uid: str) -> bool:
        try:
            found = await self._api.get(path, BareObject)
        except ObjectError:
            return True
        return found is not None and found.metadata is not None and found.metadata.uid == uid


def pod_says(row: PodRow, fact: PodFact, *, ignored: bool) -> bool:
    """The row says all that the fact says: booking it again would change nothing."""
    said = said_row(fact, ignored=ignored)
    if fact.finished or not _is_placed(row, fact):
        return False
    alike = ["name", "rv", "vm", "broken", "ignored", "moving"]
    if not (said.broken and row.max_cpu):  # else what could be read of the VM before stands
        alike += ["vm_rv", "scaled", "use_cpu", "use_mem", "max_cpu", "max_mem"]
        alike += ["over_cpu", "over_mem"]
        alike += [] if row.scaled else ["cpu", "mem"]
    return row.charge == row.overcommit.charge(row.amount) and all(
        getattr(row, name) == getattr(said, name) for name in alike
    )


def _is_placed(row: PodRow, fact: PodFact) -> bool:
    if fact.node is not None:
        return row.stage == Stage.BOUND and row.node == fact.node
    return row.stage == Stage.PENDING or (row.is_tentative and not fact.deleting)
