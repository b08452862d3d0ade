"""Tells the ledger what is known of the cluster: as it happens, or where a compare found other."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

from autoscale_enforcer.cluster.kubernetes.pump import FactPump, Put
from autoscale_enforcer.cluster.kubernetes.source import VmKey
from autoscale_enforcer.cluster.kubernetes.world import World
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.ledger.calls import Context, Leadership
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Fact
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid

CHANGED = frozenset({Fact.BOOKED, Fact.RELEASED, Fact.DELETED, Fact.ABSENT})
"""A fact that has changed a row."""


class Telling:
    """What the ledger is told, through a pump that somebody else runs."""

    def __init__(self, ledger: Ledger, config: LiveConfig, *, replica: str) -> None:
        self._ledger, self._config = ledger, config
        self._context: Context = {"replica": replica, "verb": "watch"}
        self._mending: Context = {"replica": replica, "verb": "compare"}
        self.pump, self.world = FactPump(), World()
        self.pending: set[PodUid] = set()
        """Unbound pods, as the watch has them."""
        self.repaired = 0
        """Rows that a compare has changed; at a takeover also what nobody had told meanwhile."""

    def put_pod(self, fact: PodFact) -> None:
        """Tell the ledger of a pod."""
        self.wait_for_room(fact)
        # Of a pod that we have bound it says nothing that the ledger does not count already.
        is_on_node = fact.node is not None and not (fact.finished or fact.deleting)
        put = partial(self._put_pod, fact, self._context)
        self.pump.put(("pod", fact.uid), put, may_wait=is_on_node)

    def mend_pod(self, fact: PodFact, *, is_news: bool) -> None:
        """Tell the ledger of a pod that it has other than it is."""
        del is_news
        self.wait_for_room(fact)
        self._mend(("pod", fact.uid), partial(self._put_pod, fact, self._mending))

    def read_again(self, fact: PodFact) -> PodFact:
        """The pod of a list, with what has changed around it since it was read."""
        return self.world.read_again(fact)

    def wait_for_room(self, fact: PodFact) -> None:
        """Whether the pod waits for room, which then has to be told to kube-scheduler."""
        if fact.node is None and not fact.finished and not fact.deleting:
            self.pending.add(fact.uid)
        else:
            self.pending.discard(fact.uid)

    def delete_pod(self, uid: PodUid, name: PodName) -> None:
        """Tell the ledger that a pod is gone."""
        self._forget_pod(uid)
        self.pump.put(("pod", uid), partial(self._delete_pod, uid, name, self._context))

    def mend_deleted_pod(self, uid: PodUid, name: PodName) -> None:
        """Tell the ledger that a pod is gone that it still has."""
        self._forget_pod(uid)
        self._mend(("pod", uid), partial(self._delete_pod, uid, name, self._mending))

    def put_node(self, fact: NodeFact) -> None:
        """Tell the ledger of a node."""
        self.pump.put(("node", fact.name), partial(self._put_node, fact, self._context))

    def mend_node(self, fact: NodeFact, *, is_news: bool) -> None:
        """Tell the ledger of a node that it has other than it is."""
        del is_news
        self._mend(("node", fact.name), partial(self._put_node, fact, self._mending))

    def delete_node(self, name: NodeName, uid: str) -> None:
        """Tell the ledger that a node has left."""
        self.pump.put(("node", name), partial(self._delete_node, name, uid, self._context))

    def mend_deleted_node(self, name: NodeName, uid: str) -> None:
        """Tell the ledger that a node has left that it still has."""
        self._mend(("node", name), partial(self._delete_node, name, uid, self._mending))

    def is_told(self, key: Hashable) -> bool:
        """Something of that object is on its way to the ledger."""
        return key in self.pump

    def _mend(self, key: Hashable, put: Put) -> None:
        """Tell the ledger, and count it where that has changed a row."""

        async def mend(leader: Leadership) -> Fact:
            fact = await put(leader)
            self.repaired += fact in CHANGED
            return fact

        self.pump.put(key, mend)

    def _forget_pod(self, uid: PodUid) -> None:
        self.pending.discard(uid)
        self.world.forget_pod(uid)

    def reread_pods_of(self, key: VmKey) -> None:
        """The VM has changed: so may have what its pods are worth."""
        for fact in self.world.pods_of(key):
            self.put_pod(fact)

    async def _put_pod(self, fact: PodFact, why: Context, leader: Leadership) -> Fact:
        return await self._ledger.put_pod(
            fact, leader=leader, ignored=self.is_ignored(fact), context=why
        )

    async def _delete_pod(
        self, uid: PodUid, name: PodName, why: Context, leader: Leadership
    ) -> Fact:
        return await self._ledger.delete_pod(uid, name=name, leader=leader, context=why)

    async def _put_node(self, fact: NodeFact, why: Context, leader: Leadership) -> Fact:
        return await self._ledger.put_node(
            fact,
            capacity=self._config.current.node_config(fact.name).capacity(fact.allocatable),
            config_version=self._config.version,
            leader=leader,
            context=why,
        )

    async def _delete_node(
        self, name: NodeName, uid: str, why: Context, leader: Leadership
    ) -> Fact:
        return await self._ledger.delete_node(name, uid=uid, leader=leader, context=why)

    def is_ignored(self, fact: PodFact) -> bool:
        """Its namespace is one that grants take no notice of."""
        return fact.namespace in self._config.current.ignored_namespaces
