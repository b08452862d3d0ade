"""Creating, binding, patching and deleting, under kube-apiserver's rules."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.support.fake_api import problems
from tests.support.fake_api.kinds import Target
from tests.support.fake_api.patching import merge
from tests.support.fake_api.problems import Problem
from tests.support.fake_api.store import Json, Key, Store, now_text

_PATCHES = {
    "application/merge-patch+json": False,
    "application/strategic-merge-patch+json": True,
}
_FINAL = {"Succeeded", "Failed"}


def create(store: Store, target: Target, body: bytes) -> bytes:
    """The object as it was stored."""
    given = _json(body)
    metadata = given.setdefault("metadata", {})
    if target.kind.namespaced:
        if metadata.get("namespace", target.namespace) != target.namespace:
            words = "the namespace of the provided object does not match the namespace sent"
            raise Problem(400, "BadRequest", f"{words} on the request")
        metadata["namespace"] = target.namespace
    metadata.pop("uid", None)
    if target.kind.plural == "pods":
        given.setdefault("status", {}).setdefault("phase", "Pending")
    return full(target, store.create(target.kind.plural, given))


def bind(store: Store, target: Target, body: bytes) -> bytes:
    """Bind a pod; the UID and version in the Binding are preconditions."""
    binding = _json(body)
    metadata, node = binding.get("metadata") or {}, (binding.get("target") or {}).get("name")
    if not node:
        raise Problem(422, "Invalid", 'Binding "" is invalid: target.name: Required value')
    key = _key(target)

    def assign(pod: Json) -> None:
        if why := _why_not(pod, target.name):
            raise problems.conflict("pods/binding", target.name, why)
        pod.setdefault("spec", {})["nodeName"] = node
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now_text()}
        status = {"conditions": [condition]}
        pod["status"] = merge(pod.get("status") or {}, status, strategic=True)
        for part in ("annotations", "labels"):
            if metadata.get(part):
                pod["metadata"][part] = {**(pod["metadata"].get(part) or {}), **metadata[part]}

    store.update(
        "pods",
        key,
        assign,
        uid=metadata.get("uid") or "",
        rv=metadata.get("resourceVersion") or "",
    )
    return problems.success_body()


def _why_not(pod: Json, name: str) -> str:
    spec = pod.get("spec") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    return f"pod {name} has non-empty .spec.schedulingGates" if spec.get("schedulingGates") else ""


def patch(store: Store, target: Target, body: bytes, content_type: str) -> bytes:
    """The object as it is then; a patch that changes nothing leaves its version."""
    if content_type not in _PATCHES:
        raise Problem(415, "UnsupportedMediaType", f"unsupported media type {content_type}")
    given, key = _json(body), _key(target)
    metadata = given.get("metadata") or {}
    known = store.get(target.kind.plural, key)["metadata"]
    if metadata.get("uid", known["uid"]) != known["uid"]:
        raise problems.immutable_uid(target.kind, target.name, metadata["uid"])
    if metadata.get("resourceVersion", known["resourceVersion"]) != known["resourceVersion"]:
        raise problems.modified(target.kind, target.name)

    def change(found: Json) -> None:
        before = dict(found)
        found |= merge(found, given, strategic=_PATCHES[content_type])
        if target.subresource == "status":
            found["spec"] = before.get("spec", {})
        elif target.kind.plural in ("pods", "nodes"):
            found["status"] = before.get("status", {})

    return full(target, store.update(target.kind.plural, key, change))


def delete(store: Store, target: Target, body: bytes, query: dict[str, str]) -> bytes:
    """Take an object away; a running pod is only marked, for its kubelet takes it away."""
    options = _json(body) if body else {}
    wanted = options.get("preconditions") or {}
    uid, rv = wanted.get("uid") or "", wanted.get("resourceVersion") or ""
    grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    key, plural = _key(target), target.kind.plural
    found = store.get(plural, key)
    phase = (found.get("status") or {}).get("phase")
    is_running = plural == "pods" and (found.get("spec") or {}).get("nodeName")
    if not is_running or phase in _FINAL or str(grace) == "0":
        return full(target, store.remove(plural, key, uid=uid, rv=rv))

    def mark(pod: Json) -> None:
        pod["metadata"].setdefault("deletionTimestamp", now_text())
        pod["metadata"].setdefault("deletionGracePeriodSeconds", int(grace or 30))

    return full(target, store.update(plural, key, mark, uid=uid, rv=rv))


def full(target: Target, found: Json) -> bytes:
    """An object by itself, with its kind."""
    return target.kind.head + msgspec.json.encode(found)[1:]


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise Problem(400, "BadRequest", f"the body cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise Problem(400, "BadRequest", "the body is no object")
    return found


def _key(target: Target) -> Key:
    return f"{target.namespace}/{target.name}" if target.namespace else target.name
