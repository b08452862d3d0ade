"""kube-scheduler's extender protocol v1 (filter, prioritize, bind), and our reserve and unreserve.

Requests are read as Go's decoder would: keys in any case, null for absent. Answers are written as
Go would. `preempt` has a module of its own, `victims`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.names import name_problem
from autoscale_enforcer.wire.envelope import ABSENT, Envelope, check_text, refuse, required
from autoscale_enforcer.wire.nodes import NodeList, OfferedNodes, node_list, read_offered_nodes
from autoscale_enforcer.wire.pods import (
    PodReference,
    SentPod,
    make_reference,
    read_pod_or_reference,
    read_reference,
    read_sent_pod,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRequest:
    """May this pod go to these nodes? `prioritize` asks with the same words."""

    pod: SentPod
    nodes: OfferedNodes


@dataclass(frozen=True, slots=True, kw_only=True)
class BindRequest:
    """Bind this pod to this node; what the pod needs is not said."""

    pod: PodReference
    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveRequest:
    """Hold room for this pod on this node."""

    pod: SentPod | PodReference
    """A reference is enough where the ledger knows the pod."""
    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreserveRequest:
    """Release what this pod holds on this node."""

    pod: PodReference
    node: NodeName


class ReserveCode(StrEnum):
    """Answers of reserve and unreserve, in the words of the scheduling framework."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    """Not now: another node, or this one later."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Not on this node, whatever leaves it."""
    ERROR = "Error"
    """Trouble of ours: ask again."""


class _ExtenderArgs(msgspec.Struct, forbid_unknown_fields=True):
    pod: msgspec.Raw = msgspec.field(name="Pod", default=ABSENT)
    nodes: msgspec.Raw = msgspec.field(name="Nodes", default=ABSENT)
    node_names: list[str] | None = msgspec.field(name="NodeNames", default=None)


class _ExtenderBindingArgs(msgspec.Struct, forbid_unknown_fields=True):
    pod_name: str | None = msgspec.field(name="PodName", default=None)
    pod_namespace: str | None = msgspec.field(name="PodNamespace", default=None)
    pod_uid: str | None = msgspec.field(name="PodUID", default=None)
    node: str | None = msgspec.field(name="Node", default=None)


class _ReserveArgs(msgspec.Struct, forbid_unknown_fields=True):
    pod: msgspec.Raw = msgspec.field(name="Pod", default=ABSENT)
    node_name: str | None = msgspec.field(name="NodeName", default=None)


class _FilterResult(msgspec.Struct):
    nodes: NodeList | None = msgspec.field(name="Nodes", default=None)
    node_names: Sequence[NodeName] | None = msgspec.field(name="NodeNames", default=None)
    failed: Mapping[NodeName, str] = msgspec.field(name="FailedNodes", default_factory=dict)
    unresolvable: Mapping[NodeName, str] = msgspec.field(
        name="FailedAndUnresolvableNodes", default_factory=dict
    )
    error: str = msgspec.field(name="Error", default="")


class _HostPriority(msgspec.Struct, gc=False):
    host: NodeName = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


_EXTENDER_ARGS = Envelope(_ExtenderArgs)
_BINDING_ARGS = Envelope(_ExtenderBindingArgs)
_RESERVE_ARGS = Envelope(_ReserveArgs)


def decode_filter_request(body: bytes) -> FilterRequest:
    """ExtenderArgs, of filter and prioritize; raises WireError."""
    check_text(body)
    args = _EXTENDER_ARGS.read(body)
    nodes = read_offered_nodes(args.node_names, args.nodes)
    return FilterRequest(pod=read_sent_pod(args.pod), nodes=nodes)


def decode_bind_request(body: bytes) -> BindRequest:
    """ExtenderBindingArgs; raises WireError."""
    check_text(body)
    args = _BINDING_ARGS.read(body)
    paths = ("PodNamespace", "PodName", "PodUID")
    pod = make_reference(args.pod_namespace, args.pod_name, args.pod_uid, paths=paths)
    return BindRequest(pod=pod, node=_node_name(args.node, "Node"))


def decode_reserve_request(body: bytes) -> ReserveRequest:
    """`{"Pod": whole or reference, "NodeName": …}`; raises WireError."""
    check_text(body)
    args = _RESERVE_ARGS.read(body)
    node = _node_name(args.node_name, "NodeName")
    return ReserveRequest(pod=read_pod_or_reference(args.pod), node=node)


def decode_unreserve_request(body: bytes) -> UnreserveRequest:
    """As of reserve, but a pod that makes no sense can still be released; raises WireError."""
    check_text(body)
    args = _RESERVE_ARGS.read(body)
    node = _node_name(args.node_name, "NodeName")
    return UnreserveRequest(pod=read_reference(args.pod), node=node)


def encode_filter_answer(
    offered: OfferedNodes,
    *,
    passed: Sequence[NodeName],
    failed: Mapping[NodeName, str],
    unresolvable: Mapping[NodeName, str],
) -> bytes:
    """ExtenderFilterResult in the mode that was asked; every name must be one of those offered."""
    nodes = node_list(offered, passed)
    names = passed if nodes is None else None
    return msgspec.json.encode(
        _FilterResult(nodes=nodes, node_names=names, failed=failed, unresolvable=unresolvable)
    )


def encode_filter_error(error: str) -> bytes:
    """ExtenderFilterResult that asks the scheduler to try again in seconds."""
    return msgspec.json.encode(_FilterResult(error=error))


def encode_scores(nodes: Sequence[NodeName], scores: Sequence[int]) -> bytes:
    """HostPriorityList, the answer of prioritize; a score for each of the nodes."""
    return msgspec.json.encode(list(map(_HostPriority, nodes, scores)))


def encode_bind_answer(error: str = "") -> bytes:
    """ExtenderBindingResult: bound, or why not."""
    return msgspec.json.encode({"Error": error})


def encode_reserve_answer(code: ReserveCode, reasons: Sequence[str] = ()) -> bytes:
    """The answer of reserve and of unreserve."""
    return msgspec.json.encode({"Code": code, "Reasons": reasons})


def _node_name(name: str | None, path: str) -> NodeName:
    known = required(name, path)
    refuse(name_problem(known), path)
    return NodeName(known)
