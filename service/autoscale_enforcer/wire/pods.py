"""Pods as requests carry them: whole objects, or references by namespace, name and UID."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import PodName, PodUid, pod_name
from autoscale_enforcer.model.names import name_problem, uid_problem
from autoscale_enforcer.objects.pods import read_pod
from autoscale_enforcer.objects.shapes import PodObject
from autoscale_enforcer.wire.envelope import (
    ABSENT,
    Envelope,
    decode,
    given,
    is_given,
    refuse_first,
    required,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReference:
    """Which pod is meant; all three can stand in the ledger."""

    namespace: str
    name: str
    uid: PodUid

    @property
    def full_name(self) -> PodName:
        """`namespace/name`."""
        return pod_name(self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPod:
    """A whole pod out of a request."""

    reference: PodReference
    document: PodObject
    """As it came, so that it can be read again together with its VirtualMachine."""
    found: PodFact | ObjectError
    """What it says, or why that cannot be understood: such a pod fits nowhere, yet the request
    that carries it is a good one."""

    @property
    def fact(self) -> PodFact | None:
        """What the pod says; None where it cannot be understood."""
        return self.found if isinstance(self.found, PodFact) else None

    @property
    def problem(self) -> ObjectError | None:
        """Why the pod cannot be understood; None where it can."""
        return self.found if isinstance(self.found, ObjectError) else None


class _Metadata(msgspec.Struct):
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class _Named(msgspec.Struct):
    metadata: _Metadata | None = None


class _Reference(msgspec.Struct, forbid_unknown_fields=True):
    namespace: str | None = msgspec.field(name="Namespace", default=None)
    name: str | None = msgspec.field(name="Name", default=None)
    uid: str | None = msgspec.field(name="UID", default=None)


class _AnyPod(msgspec.Struct):
    metadata: msgspec.Raw = ABSENT


_OWN = ("Pod.metadata.namespace", "Pod.metadata.name", "Pod.metadata.uid")
"""Where a whole pod says which it is."""

_POD = msgspec.json.Decoder(PodObject)
_NAMED = msgspec.json.Decoder(_Named)
_ANY_POD = msgspec.json.Decoder(_AnyPod)
_REFERENCE = Envelope(_Reference)


def read_sent_pod(raw: msgspec.Raw) -> SentPod:
    """The whole pod under `Pod`; one whose requests make no sense comes back as such."""
    pod = decode(_POD, given(raw, "Pod"), "Pod")
    own = required(pod.metadata, "Pod.metadata")
    reference = make_reference(own.namespace, own.name, own.uid, paths=_OWN)
    return SentPod(reference=reference, document=pod, found=_fact_or_problem(pod))


def read_pod_or_reference(raw: msgspec.Raw) -> SentPod | PodReference:
    """The pod under `Pod`, which is whole where it has `metadata`."""
    return read_sent_pod(raw) if _is_whole(given(raw, "Pod")) else read_reference(raw)


def read_reference(raw: msgspec.Raw) -> PodReference:
    """Which pod stands under `Pod`, whole or not; the rest of a whole one is not looked at."""
    document = given(raw, "Pod")
    if _is_whole(document):
        own = required(decode(_NAMED, document, "Pod").metadata, "Pod.metadata")
        return make_reference(own.namespace, own.name, own.uid, paths=_OWN)
    sent = _REFERENCE.read(document, "Pod")
    names = ("Pod.Namespace", "Pod.Name", "Pod.UID")
    return make_reference(sent.namespace, sent.name, sent.uid, paths=names)


def make_reference(
    namespace: str | None, name: str | None, uid: str | None, *, paths: tuple[str, str, str]
) -> PodReference:
    """A checked reference; `paths` say where the three stand in the body."""
    space, pod, known = map(required, (namespace, name, uid), paths)
    problems = (name_problem(space), name_problem(pod), uid_problem(known))
    refuse_first(zip(paths, problems, strict=True))
    return PodReference(namespace=space, name=pod, uid=PodUid(known))


def _is_whole(document: msgspec.Raw) -> bool:
    return is_given(decode(_ANY_POD, document, "Pod").metadata)


def _fact_or_problem(pod: PodObject) -> PodFact | ObjectError:
    try:
        return read_pod(pod, None)
    except ObjectError as error:
        return error.under("Pod")
