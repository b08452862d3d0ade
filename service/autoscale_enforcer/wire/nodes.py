"""The nodes that a scheduler offers: by name, or as whole objects that must travel back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import msgspec

from autoscale_enforcer.errors import WireError
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.names import first_bad_name, name_problem
from autoscale_enforcer.objects.shapes import NodeObject
from autoscale_enforcer.wire.envelope import ABSENT, Envelope, decode, is_given, refuse, required


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedNodes:
    """Nodes to choose among, each once, in the order they came."""

    names: tuple[NodeName, ...]
    whole: Mapping[NodeName, msgspec.Raw] | None = None
    """The bytes of each Node as they came; None where names alone were sent."""
    list_metadata: bytes = b"{}"

    def document(self, name: NodeName) -> NodeObject | None:
        """The Node object that was sent under `name`, read now; None where names alone were sent.

        Raises WireError where it cannot be understood.
        """
        if self.whole is None:
            return None
        return decode(_NODE, self.whole[name], f"Nodes.items({name})")


class NodeList(msgspec.Struct):
    """A Kubernetes list whose items stay as the bytes they are."""

    metadata: msgspec.Raw
    items: list[msgspec.Raw]


class _SentNodeList(msgspec.Struct, forbid_unknown_fields=True):
    kind: msgspec.Raw = ABSENT
    api_version: msgspec.Raw = msgspec.field(name="apiVersion", default=ABSENT)
    metadata: msgspec.Raw = ABSENT
    items: list[msgspec.Raw] | None = None


class _Metadata(msgspec.Struct):
    name: str | None = None


class _NamedNode(msgspec.Struct):
    metadata: _Metadata | None = None


_NODE_LIST = Envelope(_SentNodeList)
_NODE = msgspec.json.Decoder(NodeObject)
_NAMED_NODE = msgspec.json.Decoder(_NamedNode)


def read_offered_nodes(names: list[str] | None, nodes: msgspec.Raw) -> OfferedNodes:
    """What is offered, in the mode that the request chose: names where there are any.

    An empty list of names beside whole Nodes is a client's way to say "no names".
    """
    if names is None and not is_given(nodes):
        raise WireError("NodeNames", "is required, unless Nodes is given")
    if names or not is_given(nodes):
        return OfferedNodes(names=_checked_names(names or []))
    sent = _NODE_LIST.read(nodes, "Nodes")
    whole: dict[NodeName, msgspec.Raw] = {}
    for index, item in enumerate(sent.items or []):
        whole.setdefault(_name_of(item, index), item)
    metadata = bytes(sent.metadata) if is_given(sent.metadata) else b"{}"
    return OfferedNodes(names=tuple(whole), whole=whole, list_metadata=metadata)


def node_list(offered: OfferedNodes, names: Iterable[NodeName]) -> NodeList | None:
    """A NodeList of those offered Nodes, byte for byte; None where names alone were sent."""
    if offered.whole is None:
        return None
    items = [offered.whole[name] for name in names]
    return NodeList(metadata=msgspec.Raw(offered.list_metadata), items=items)


def _checked_names(names: list[str]) -> tuple[NodeName, ...]:
    bad = first_bad_name(names)
    if bad:
        index, problem = bad
        raise WireError(f"NodeNames[{index}]", problem)
    is_each_once = len(set(names)) == len(names)  # nearly always, and cheaper than a dict
    return tuple(cast("Iterable[NodeName]", names if is_each_once else dict.fromkeys(names)))


def _name_of(item: msgspec.Raw, index: int) -> NodeName:
    path = f"Nodes.items[{index}]"
    metadata = required(decode(_NAMED_NODE, item, path).metadata, f"{path}.metadata")
    name = required(metadata.name, f"{path}.metadata.name")
    refuse(name_problem(name), f"{path}.metadata.name")
    return NodeName(name)
