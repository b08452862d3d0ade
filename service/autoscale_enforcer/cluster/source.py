"""What any cluster can be asked. Every answer is live, never from a cache."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Protocol

from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.objects.shapes import VmObject


class Bound(StrEnum):
    """What became of a Binding that was sent."""

    CREATED = "created"
    """The pod is bound to that node."""
    OTHER_VERSION = "other version"
    """Refused only because the pod has changed since it was read."""
    UNCLEAR = "unclear"
    """Refused for another reason, or no answer came: only a live read can tell."""


class ClusterSource(Protocol):
    """A cluster. Every method raises ClusterUnavailable where no usable answer came."""

    is_shared_by_ledger: bool
    """True for a file: what one replica hears of a pod the others learn from the ledger only."""

    async def read_node(self, name: NodeName) -> NodeFact | None:
        """The node of that name now; None: there is none."""
        ...

    async def facts_on(self, node: NodeName) -> list[PodFact]:
        """The pods that are on the node now, those that cannot be read left out."""
        ...

    async def read_pod(self, name: PodName) -> PodFact | None:
        """The pod of that name now; None: there is none."""
        ...

    async def read_pods(self, names: AbstractSet[PodName]) -> dict[PodName, PodFact | None]:
        """The pods of those names now, however many, at the price of a list; None: there is none.

        What is there and cannot be read, or may be there, is left out.
        """
        ...

    async def pods_on(self, node: NodeName) -> set[PodUid]:
        """UIDs of the unfinished pods that are on the node now."""
        ...

    async def virtual_machine(self, namespace: str, name: str) -> VmObject | None:
        """The VirtualMachine now; None: there is none."""
        ...

    async def bind(
        self, uid: PodUid, name: PodName, *, node: NodeName, resource_version: str
    ) -> Bound:
        """Send one Binding with the pod's UID and, where known ('-' is not), its version."""
        ...

    async def outdate_bindings(self, fact: PodFact) -> PodFact | None:
        """Raise the version of an unbound pod, after which no Binding sent earlier can succeed.

        The pod as it is then; None: it is gone.
        """
        ...

    async def list_nodes(self) -> list[NodeFact]:
        """Every node that can be read."""
        ...

    async def list_pods(self) -> list[PodFact]:
        """Every pod that can be read."""
        ...
