"""fieldSelector and labelSelector, in their forms with = and !=."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.support.fake_api.problems import Problem
from tests.support.fake_api.store import decoded

Selects = Callable[[bytes], bool]
_FIELDS = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "spec.nodeName": ("spec", "nodeName"),
    "spec.schedulerName": ("spec", "schedulerName"),
    "status.phase": ("status", "phase"),
}


def selector(query: Mapping[str, str], namespace: str) -> Selects | None:
    """Whether a row is asked for; None: every one is."""
    fields = _terms(query.get("fieldSelector", ""))
    labels = _terms(query.get("labelSelector", ""))
    for name, _, _ in fields:
        if name not in _FIELDS:
            raise Problem(400, "BadRequest", f"field label not supported: {name}")
    if not (fields or labels or namespace):
        return None
    mark = f'"namespace":"{namespace}"'.encode() if namespace else b""

    def selects(row: bytes) -> bool:
        if mark not in row:
            return False
        found = decoded(row)
        if namespace and found["metadata"].get("namespace") != namespace:
            return False
        known = found["metadata"].get("labels") or {}
        return all((known.get(name) == value) is wanted for name, value, wanted in labels) and all(
            (_field(found, name) == value) is wanted for name, value, wanted in fields
        )

    return selects


def _field(found: dict[str, Any], name: str) -> str:
    part, key = _FIELDS[name]
    return str((found.get(part) or {}).get(key) or "")


def _terms(text: str) -> list[tuple[str, str, bool]]:
    terms = []
    for term in filter(None, text.split(",")):
        name, _, value = term.partition("=")
        terms.append((name.rstrip("!"), value.lstrip("="), not name.endswith("!")))
    return terms
