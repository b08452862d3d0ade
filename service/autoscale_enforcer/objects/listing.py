"""What `kubectl get nodes,pods,virtualmachines -A -o json` (or yaml) prints, as facts.

Also taken: single objects, lists inside lists, YAML of several documents, and the API's own lists
(PodList), whose items carry no kind. Kinds that we do not read are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import yaml

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.objects.decode import convert, decode
from autoscale_enforcer.objects.nodes import read_node
from autoscale_enforcer.objects.pods import DEFAULT_NAMESPACE, read_pod
from autoscale_enforcer.objects.shapes import KubeStruct, NodeObject, PodObject, VmObject
from autoscale_enforcer.objects.vms import is_vm_group, vm_owner

T = TypeVar("T")

DEEPEST_LIST = 8
"""Lists inside lists; with YAML aliases a list may hold itself."""

VmKey = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class BadObject:
    """An object of the file that could not be read, and why; the others are not touched by it."""

    position: int
    """Counted from 1 through the whole file: an object's very name may be what is broken."""
    kind: str
    namespace: str
    name: str
    error: ObjectError

    def describe(self) -> str:
        """One line for people."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind or 'object'} {name or f'number {self.position}'}: {self.error}"


@dataclass(slots=True)
class ClusterListing:
    """What one file says, each kind in the order of the file."""

    nodes: list[NodeFact] = field(default_factory=list)
    pods: list[PodFact] = field(default_factory=list)
    vms: dict[VmKey, VmObject] = field(default_factory=dict)
    bad: list[BadObject] = field(default_factory=list)


def read_cluster(text: bytes) -> ClusterListing:
    """The nodes, pods and VMs of a file; objects that cannot be read are collected in `bad`.

    VM pods without the annotation take their data from the VirtualMachine in the same file.
    Raises ObjectError, with words for people, where the file is no such list at all.
    """
    reading = _Reading()
    for document in _documents(text):
        for position, item in enumerate(_walk(document), start=reading.count + 1):
            reading.take(position, item)
    reading.take_pods()
    return reading.checked()


class _Header(KubeStruct):
    api_version: str | None = None
    kind: str | None = None
    metadata: Any = None


class _JsonItems(KubeStruct):
    items: list[msgspec.Raw] | None = None


class _PlainItems(KubeStruct):
    items: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class _Item:
    """One object of the file: JSON not yet decoded, or what YAML made of it."""

    source: Any
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    error: ObjectError | None = None


class _Reading:
    """A file being read. Pods come last, for a VM may stand behind its pod."""

    def __init__(self) -> None:
        self.listing = ClusterListing()
        self.pods: list[tuple[int, _Item]] = []
        self.passed_over: set[str] = set()
        self.count = 0

    def take(self, position: int, item: _Item) -> None:
        self.count = position
        try:
            self.sort(position, item)
        except ObjectError as error:
            self.refuse(position, item, error)

    def sort(self, position: int, item: _Item) -> None:
        if item.error is not None:
            raise item.error
        if item.kind == "Node" and item.api_version == "v1":
            self.listing.nodes.append(read_node(_read(item.source, NodeObject)))
        elif item.kind == "Pod" and item.api_version == "v1":
            self.pods.append((position, item))
        elif item.kind == "VirtualMachine" and is_vm_group(item.api_version):
            key = (item.namespace or DEFAULT_NAMESPACE, item.name)
            self.listing.vms[key] = _read(item.source, VmObject)
        else:
            self.passed_over.add(item.kind)

    def take_pods(self) -> None:
        for position, item in self.pods:
            try:
                pod = _read(item.source, PodObject)
                key = (item.namespace or DEFAULT_NAMESPACE, vm_owner(pod) or "")
                self.listing.pods.append(read_pod(pod, self.listing.vms.get(key)))
            except ObjectError as error:
                self.refuse(position, item, error)

    def refuse(self, position: int, item: _Item, error: ObjectError) -> None:
        self.listing.bad.append(BadObject(position, item.kind, item.namespace, item.name, error))

    def checked(self) -> ClusterListing:
        listing = self.listing
        if self.passed_over and not (listing.nodes or listing.pods or listing.vms or listing.bad):
            kinds = ", ".join(sorted(self.passed_over)[:5])
            raise ObjectError("", f"holds no Node, Pod or VirtualMachine, only {kinds}")
        return listing


def _documents(text: bytes) -> Iterator[Any]:
    """The JSON text itself, or each document of the YAML."""
    text = text.removeprefix(b"\xef\xbb\xbf").strip()
    if text.startswith(b"{"):
        yield text
        return
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        documents = [each for each in yaml.load_all(text, loader) if each is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ObjectError("", f"neither JSON nor YAML: {error}") from error
    if not documents:
        raise ObjectError("", "is empty: expected what kubectl get -o json prints")
    yield from documents


def _walk(source: Any, depth: int = 0, of: _Header | None = None) -> Iterator[_Item]:
    """The objects in a document; `of` is the list around it.

    Raises ObjectError where it is no object; inside a list such a thing is an item with an error.
    """
    header = _read(source, _Header)
    kind = header.kind or (of and (of.kind or "").removesuffix("List")) or ""
    api_version = header.api_version or (of and of.api_version) or ""
    metadata = header.metadata if isinstance(header.metadata, dict) else {}
    namespace, name = (str(metadata.get(key) or "") for key in ("namespace", "name"))
    if not kind:
        raise ObjectError("kind", "missing: expected what kubectl get -o json prints")
    if name or not kind.endswith("List"):
        yield _Item(source, api_version, kind, namespace, name)
        return
    if depth == DEEPEST_LIST:
        raise ObjectError("items", "lists inside lists, too deeply")
    for index, child in enumerate(_children(source)):
        try:
            yield from _walk(child, depth + 1, header)
        except ObjectError as error:
            yield _Item(child, error=error.under(f"items[{index}]"))


def _children(source: Any) -> list[Any]:
    if isinstance(source, bytes | msgspec.Raw):
        return list(_read(source, _JsonItems).items or ())
    return _read(source, _PlainItems).items or []


def _read(source: Any, kind: type[T]) -> T:
    json = isinstance(source, bytes | msgspec.Raw)
    return decode(source, kind) if json else convert(source, kind)
