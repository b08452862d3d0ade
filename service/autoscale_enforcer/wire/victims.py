"""`preempt` of the extender protocol: which pods a scheduler would evict, and which it may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from autoscale_enforcer.errors import WireError
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.names import name_problem, uid_problem
from autoscale_enforcer.wire.envelope import (
    ABSENT,
    Envelope,
    check_text,
    decode,
    is_given,
    refuse,
    required,
)
from autoscale_enforcer.wire.pods import SentPod, read_sent_pod

_META = "NodeNameToMetaVictims"
_WHOLE = "NodeNameToVictims"


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """Pods that would have to leave one node."""

    uids: tuple[PodUid, ...]
    """Each once; may be empty (kube-scheduler from 1.37 offers such nodes too)."""
    pdb_violations: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptRequest:
    """May this pod take the place of these?"""

    pod: SentPod
    victims: Mapping[NodeName, Victims]


class _PreemptionArgs(msgspec.Struct, forbid_unknown_fields=True):
    pod: msgspec.Raw = msgspec.field(name="Pod", default=ABSENT)
    whole: dict[str, msgspec.Raw] | None = msgspec.field(name=_WHOLE, default=None)
    meta: dict[str, msgspec.Raw] | None = msgspec.field(name=_META, default=None)


class _Victims(msgspec.Struct, forbid_unknown_fields=True):
    pods: list[msgspec.Raw] | None = msgspec.field(name="Pods", default=None)
    pdb_violations: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = msgspec.field(
        name="NumPDBViolations", default=None
    )


class _MetaPod(msgspec.Struct, forbid_unknown_fields=True):
    uid: str | None = msgspec.field(name="UID", default=None)


class _Metadata(msgspec.Struct):
    uid: str | None = None


class _WholePod(msgspec.Struct):
    metadata: _Metadata | None = None


# `nodeToVictims` is how schedulers before the v1 types spelled it.
_PREEMPTION_ARGS = Envelope(_PreemptionArgs, older={"nodeToVictims": _WHOLE})
_VICTIMS = Envelope(_Victims)
_META_POD = Envelope(_MetaPod)
_WHOLE_POD = msgspec.json.Decoder(_WholePod)


def decode_preempt_request(body: bytes) -> PreemptRequest:
    """ExtenderPreemptionArgs; UIDs are enough, so they win over whole pods. Raises WireError."""
    check_text(body)
    args = _PREEMPTION_ARGS.read(body)
    pod = read_sent_pod(args.pod)
    if args.meta is not None:
        return PreemptRequest(pod=pod, victims=_read_victims(args.meta, _META))
    if args.whole is not None:
        return PreemptRequest(pod=pod, victims=_read_victims(args.whole, _WHOLE))
    raise WireError(_META, f"is required, unless {_WHOLE} is given")


def encode_preempt_answer(victims: Mapping[NodeName, Victims]) -> bytes:
    """ExtenderPreemptionResult: the nodes that are left, and who must leave each."""
    answer = {
        node: {
            "Pods": [{"UID": uid} for uid in one.uids],
            "NumPDBViolations": one.pdb_violations,
        }
        for node, one in victims.items()
    }
    return msgspec.json.encode({_META: answer})


def _read_victims(sent: Mapping[str, msgspec.Raw], field: str) -> dict[NodeName, Victims]:
    for node in sent:
        refuse(name_problem(node), f"{field}: name of a node")
    return {
        NodeName(node): _read_one(raw, f"{field}[{node}]", whole=field == _WHOLE)
        for node, raw in sent.items()
    }


def _read_one(raw: msgspec.Raw, path: str, *, whole: bool) -> Victims:
    if not is_given(raw):
        return Victims(uids=())
    sent = _VICTIMS.read(raw, path)
    read_uid = _whole_pod_uid if whole else _meta_pod_uid
    uids = [read_uid(pod, f"{path}.Pods[{index}]") for index, pod in enumerate(sent.pods or [])]
    return Victims(uids=tuple(dict.fromkeys(uids)), pdb_violations=sent.pdb_violations or 0)


def _meta_pod_uid(raw: msgspec.Raw, path: str) -> PodUid:
    return _checked_uid(_META_POD.read(raw, path).uid, f"{path}.UID")


def _whole_pod_uid(raw: msgspec.Raw, path: str) -> PodUid:
    metadata = required(decode(_WHOLE_POD, raw, path).metadata, f"{path}.metadata")
    return _checked_uid(metadata.uid, f"{path}.metadata.uid")


def _checked_uid(uid: str | None, path: str) -> PodUid:
    known = required(uid, path)
    refuse(uid_problem(known), path)
    return PodUid(known)
