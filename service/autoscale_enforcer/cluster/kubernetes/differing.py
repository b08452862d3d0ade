"""What a full compare would change now, found without changing anything, at any replica."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from autoscale_enforcer.cluster.differences import (
    Difference,
    shown_capacity,
    shown_fact,
    shown_node,
    shown_row,
    sum_differences,
)
from autoscale_enforcer.cluster.kubernetes.answers import BadObject
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.comparing import Comparison
from autoscale_enforcer.cluster.kubernetes.failures import NotServed
from autoscale_enforcer.cluster.kubernetes.paths import MIGRATIONS, NODES, PODS, VIRTUAL_MACHINES
from autoscale_enforcer.cluster.kubernetes.world import World
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import NodeRow
from autoscale_enforcer.objects.nodes import read_node
from autoscale_enforcer.objects.shapes import MigrationObject, NodeObject, PodObject, VmObject
from autoscale_enforcer.turns import FullCollections, Turns

T = TypeVar("T", NodeObject, PodObject)
F = TypeVar("F", NodeFact, PodFact)

GONE = "gone"


class _Noted:
    """Hears what a comparison wants to have booked, and books nothing."""

    def __init__(self) -> None:
        self.pods: dict[PodUid, PodFact | PodName] = {}
        self.nodes: dict[NodeName, NodeFact | None] = {}

    def mend_pod(self, fact: PodFact, *, is_news: bool) -> None:
        """The pod is so."""
        del is_news
        self.pods[fact.uid] = fact

    def mend_deleted_pod(self, uid: PodUid, name: PodName) -> None:
        """The pod is gone."""
        self.pods[uid] = name

    def mend_node(self, fact: NodeFact, *, is_news: bool) -> None:
        """The node is so."""
        del is_news
        self.nodes[fact.name] = fact

    def mend_deleted_node(self, name: NodeName, uid: str) -> None:
        """The node has left."""
        del uid
        self.nodes[name] = None

    def read_again(self, fact: PodFact) -> PodFact:
        """As it was listed: nothing is watched here."""
        return fact

    def wait_for_room(self, fact: PodFact) -> None:
        """Of no interest here."""


async def find_differences(api: KubeApi, ledger: Ledger, config: LiveConfig) -> list[Difference]:
    """Every row that a compare begun now would change.

    Raises ClusterUnavailable and LedgerUnavailable, ClusterWentBack where a compare would build
    the ledger anew.
    """
    world = await _world(api)
    noted = _Noted()
    comparison = Comparison(api, ledger, config, noted)
    listed_nodes = await api.list_all(NODES, NodeObject)
    nodes, bad_nodes = await _read(listed_nodes.items, read_node)
    await comparison.nodes(nodes, [*listed_nodes.bad, *bad_nodes], listed_nodes.resource_version)
    with FullCollections.held_off():
        listed_pods = await api.list_all(PODS, PodObject)
        pods, bad_pods = await _read(listed_pods.items, world.read_pod)
    await comparison.pods(pods, [*listed_pods.bad, *bad_pods], listed_pods.resource_version)
    rows = ledger.mirror.nodes
    return [
        *(_of_node(name, rows.get(name), fact, config) for name, fact in noted.nodes.items()),
        *[await _of_pod(ledger, uid, said) for uid, said in noted.pods.items()],
        *await sum_differences(ledger),
    ]


async def _world(api: KubeApi) -> World:
    """What pods are read with."""
    world = World()
    try:
        world.replace_vms((await api.list_all(VIRTUAL_MACHINES, VmObject)).items)
        world.replace_migrations((await api.list_all(MIGRATIONS, MigrationObject)).items)
    except NotServed:
        pass  # a cluster without VMs
    return world


async def _read(items: list[T], read: Callable[[T], F]) -> tuple[list[F], list[BadObject]]:
    facts, bad, turns = [], [], Turns()
    for item in items:
        try:
            facts.append(read(item))
        except ObjectError as error:
            found = item.metadata
            uid, name = (found.uid or "", found.name or "") if found else ("", "")
            bad.append(BadObject(error=error, uid=uid, name=name))
        await turns.pause()
    return facts, bad


def _of_node(
    name: NodeName, row: NodeRow | None, fact: NodeFact | None, config: LiveConfig
) -> Difference:
    if fact is None:
        return Difference("node", name, shown_node(row), GONE)
    capacity = config.current.node_config(name).capacity(fact.allocatable)
    return Difference("node", name, shown_node(row), shown_capacity(fact, capacity))


async def _of_pod(ledger: Ledger, uid: PodUid, said: PodFact | PodName) -> Difference:
    known = await ledger.read_pod(uid=uid)
    row = known.row if known else None
    if isinstance(said, PodFact):
        return Difference("pod", said.full_name, shown_row(row), shown_fact(said))
    return Difference("pod", said, shown_row(row), GONE)
