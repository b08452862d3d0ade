"""What a recorded request asked for: the part of each message that its answer is judged against.

Pure. The bytes that are sent never come from here: a request travels as it was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from autoscale_enforcer.errors import ServiceError

T = TypeVar("T")
D = TypeVar("D")


class UnreadableError(ServiceError):
    """JSON that is not of the expected shape; the text says where."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod a call is about: `uid` tells pods apart, `name` is for people."""

    uid: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesAsked:
    """What filter and prioritize carry: a pod and the nodes offered to it."""

    pod: Pod
    offered: tuple[str, ...]
    nodes: Mapping[str, bytes] | None
    """Each Node object as sent, by name; None where only names travel."""


class FilterAsked(NodesAsked):
    """Which of the offered nodes can take the pod?"""


class PrioritizeAsked(NodesAsked):
    """How good is each offered node for the pod?"""


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods that would have to leave one node, by UID."""

    uids: frozenset[str]
    budget_violations: int


@dataclass(frozen=True, slots=True)
class PreemptAsked:
    """On which of the offered nodes would the victims' leaving make room for the pod?"""

    pod: Pod
    offered: Mapping[str, Victims]


@dataclass(frozen=True, slots=True)
class BindAsked:
    """Bind the pod to the node."""

    pod: Pod
    node: str


@dataclass(frozen=True, slots=True)
class ReserveAsked:
    """Hold room for the pod on the node."""

    pod: Pod
    node: str


class UnreserveAsked(ReserveAsked):
    """Give that room back."""


Asked = FilterAsked | PrioritizeAsked | PreemptAsked | BindAsked | ReserveAsked | UnreserveAsked


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def decode(raw: bytes | msgspec.Raw, kind: type[T]) -> T:
    """`raw` as a `kind`. Raises UnreadableError."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableError(str(error)) from error
    except RecursionError as error:
        raise UnreadableError("nested too deeply") from error


def node_name(raw: bytes | msgspec.Raw) -> str:
    """The name in a Node object. Raises UnreadableError."""
    name = decode(raw, _Object).metadata.name
    if not name:
        raise UnreadableError("a Node without metadata.name")
    return name


def read_asked(verb: str, request: bytes | msgspec.Raw) -> Asked:
    """What a request asks, its keys in any case.

    Raises UnreadableError, for an unknown verb too.
    """
    reader = _READERS.get(verb)
    if reader is None:
        known = ", ".join(_READERS)
        raise UnreadableError(f"verb {verb!r} is none of {known}")
    return reader(_folded(decode(request, dict[str, msgspec.Raw])))


_Fields = dict[str, msgspec.Raw]


def _field(fields: _Fields, key: str, kind: type[T], absent: D) -> T | D:
    raw = fields.get(key.lower())
    if raw is None or bytes(raw) == b"null":
        return absent
    try:
        return decode(raw, kind)
    except UnreadableError as error:
        raise UnreadableError(f"{key}: {error}") from error


def _pod(fields: _Fields) -> Pod:
    pod = _field(fields, "Pod", dict[str, msgspec.Raw], _Fields())
    meta = _field(pod, "metadata", _Metadata, None) or _reference(pod)
    if not meta.name:
        raise UnreadableError("Pod is missing, or has no name")
    return _known(meta.uid, meta.namespace, meta.name)


def _reference(pod: _Fields) -> _Metadata:
    folded = _folded(pod)
    return _Metadata(
        name=_field(folded, "Name", str, ""),
        namespace=_field(folded, "Namespace", str, ""),
        uid=_field(folded, "UID", str, ""),
    )


def _folded(fields: _Fields) -> _Fields:
    return {key.lower(): value for key, value in fields.items()}


def _known(uid: str, namespace: str, name: str) -> Pod:
    full_name = f"{namespace}/{name}" if namespace else name
    return Pod(uid=uid or full_name, name=full_name)


def _offer(fields: _Fields) -> tuple[tuple[str, ...], dict[str, bytes] | None]:
    whole = _field(fields, "Nodes", _NodeList, None)
    if whole is None:
        return tuple(_field(fields, "NodeNames", list[str], [])), None
    nodes = {node_name(raw): bytes(raw) for raw in whole.items or ()}
    return tuple(nodes), nodes


def _read_filter(fields: _Fields) -> FilterAsked:
    offered, nodes = _offer(fields)
    return FilterAsked(pod=_pod(fields), offered=offered, nodes=nodes)


def _read_prioritize(fields: _Fields) -> PrioritizeAsked:
    offered, nodes = _offer(fields)
    return PrioritizeAsked(pod=_pod(fields), offered=offered, nodes=nodes)


class _MetaPod(msgspec.Struct):
    uid: str = msgspec.field(name="UID", default="")


class _MetaVictims(msgspec.Struct):
    pods: list[_MetaPod] | None = msgspec.field(name="Pods", default=None)
    budget_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _WholeVictims(msgspec.Struct):
    pods: list[_Object] | None = msgspec.field(name="Pods", default=None)
    budget_violations: int = msgspec.field(name="NumPDBViolations", default=0)


def _read_preempt(fields: _Fields) -> PreemptAsked:
    meta = _field(fields, "NodeNameToMetaVictims", dict[str, _MetaVictims], {})
    offered = {
        node: Victims(frozenset(pod.uid for pod in victims.pods or ()), victims.budget_violations)
        for node, victims in meta.items()
    }
    whole = _field(fields, "NodeNameToVictims", dict[str, _WholeVictims], {})
    for node, them in whole.items():
        uids = frozenset(pod.metadata.uid for pod in them.pods or ())
        offered[node] = Victims(uids, them.budget_violations)
    return PreemptAsked(_pod(fields), offered)


def _read_bind(fields: _Fields) -> BindAsked:
    name = _field(fields, "PodName", str, "")
    node = _field(fields, "Node", str, "")
    if not name or not node:
        raise UnreadableError("bind needs PodName and Node")
    namespace = _field(fields, "PodNamespace", str, "")
    return BindAsked(_known(_field(fields, "PodUID", str, ""), namespace, name), node)


def _read_reserve(fields: _Fields) -> ReserveAsked:
    return ReserveAsked(_pod(fields), _field(fields, "NodeName", str, ""))


def _read_unreserve(fields: _Fields) -> UnreserveAsked:
    return UnreserveAsked(_pod(fields), _field(fields, "NodeName", str, ""))


_READERS: dict[str, Callable[[_Fields], Asked]] = {
    "filter": _read_filter,
    "prioritize": _read_prioritize,
    "preempt": _read_preempt,
    "bind": _read_bind,
    "reserve": _read_reserve,
    "unreserve": _read_unreserve,
}
