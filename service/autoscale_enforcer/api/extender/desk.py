"""What every verb works with: ledger, cluster, config, and pods as requests say them."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from autoscale_enforcer.api.http import in_time
from autoscale_enforcer.api.placement import Placement
from autoscale_enforcer.api.standings import Standings
from autoscale_enforcer.cluster.binder import Binder, BindOrder
from autoscale_enforcer.cluster.learner import NodeLearner
from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.config.settings import LimitSettings
from autoscale_enforcer.errors import ObjectError, Overloaded
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.rows import PodRow, said_row
from autoscale_enforcer.objects.pods import read_pod
from autoscale_enforcer.objects.vms import vm_owner
from autoscale_enforcer.time_limit import TimeLimit
from autoscale_enforcer.wire.pods import PodReference, SentPod

log = logging.getLogger(__name__)

T = TypeVar("T")

REMEMBERED_PODS = 10_000
"""Pods that a filter brought here, for the bind that follows; the ledger knows most of them too."""


@dataclass(slots=True)
class Desk:
    """One replica's means to answer kube-scheduler."""

    ledger: Ledger
    source: ClusterSource
    binder: Binder
    learner: NodeLearner
    config: LiveConfig
    replica: str
    limits: LimitSettings
    """`answer_within` is what kube-scheduler is kept waiting at most; as many binds as `requests`
    are under way at once, those included that went on behind their answer."""
    standings: Standings = field(init=False)
    _limit: TimeLimit = field(init=False)
    _heard: OrderedDict[PodUid, PodRow] = field(default_factory=OrderedDict)
    _running: set[asyncio.Future[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.standings = Standings(self.ledger.mirror)
        self._limit = TimeLimit(self.limits.answer_within)

    async def in_time(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives; TooLate where kube-scheduler would wait too long for it."""
        return await in_time(work, self._limit)

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives. It goes on to its end even where nobody waits for it any more.

        Overloaded, and nothing begun, where too much is under way: an API server that hangs would
        let it pile up behind its answers.
        """
        if len(self._running) >= self.limits.requests:
            work.close()
            raise Overloaded("too many binds are under way: ask again")
        task = asyncio.ensure_future(work)
        self._running.add(task)  # or nobody would hold it, and Python might drop it half-way
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_problem)
            raise

    async def finish(self, within: float) -> None:
        """Wait so many seconds for what goes on by itself; the sweep settles what takes longer."""
        if self._running:
            await asyncio.wait(self._running, timeout=within)

    async def order(self, verb: str, pod: PodReference, node: NodeName) -> BindOrder:
        """A call that has just reached us, with the stamp that each attempt of it carries."""
        return BindOrder(
            uid=pod.uid,
            name=pod.full_name,
            node=node,
            stamp=await self.ledger.stamp(),
            context={"replica": self.replica, "verb": verb},
        )

    async def read_sent(self, sent: SentPod) -> PodFact | ObjectError:
        """The pod that a request carries; of a VM without the annotation the VM object tells.

        Where the annotation says what the VM has, the API server is not asked: a slow one would
        make every filter of a VM slow.
        """
        fact = sent.fact
        if fact is None or not fact.problem:
            return sent.found
        owner = vm_owner(sent.document)
        vm = await self.source.virtual_machine(fact.namespace, owner) if owner else None
        try:
            return read_pod(sent.document, vm) if vm else fact
        except ObjectError as error:
            return error.under("Pod")

    def say(self, fact: PodFact) -> PodRow:
        """The pod as a row, remembered for the bind that may follow."""
        row = said_row(fact, ignored=fact.namespace in self.config.current.ignored_namespaces)
        self._heard[fact.uid] = row
        self._heard.move_to_end(fact.uid)
        if len(self._heard) > REMEMBERED_PODS:
            self._heard.popitem(last=False)
        return row

    def heard_of(self, uid: PodUid) -> PodRow | None:
        """What the last request that carried the pod said of it, at this replica."""
        return self._heard.get(uid)

    async def place(self, fact: PodFact) -> Placement:
        """The pod against the nodes as they are now: one round trip, shared with other calls."""
        sent = self.say(fact)
        if self.source.is_shared_by_ledger:
            _, known = await asyncio.gather(self.note(fact), self._read(fact.uid))
        else:
            known = await self._read(fact.uid)
        return Placement.of(self.ledger.mirror, sent=sent, known=known)

    async def _read(self, uid: PodUid) -> PodRow | None:
        asked = self.ledger.mirror.ask()
        known = await self.ledger.read_pod(uid=uid)
        await self.ledger.mirror.refresh(asked)
        return known.row if known else None

    async def note(self, fact: PodFact) -> None:
        """With a file source: make the pod known to every replica; nothing known changes."""
        if self.source.is_shared_by_ledger:
            ignored = fact.namespace in self.config.current.ignored_namespaces
            await self.ledger.put_pod(fact, leader=None, ignored=ignored)


def _log_problem(task: asyncio.Future[Any]) -> None:
    """Of work that nobody waits for any more: nobody else would hear of it."""
    problem = None if task.cancelled() else task.exception()
    if problem:
        log.warning("what was begun came to no end: %s", problem)
