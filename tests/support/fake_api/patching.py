"""Merge patches: RFC 7386, and as much of Kubernetes' strategic ones as status patches need."""

from __future__ import annotations

from typing import Any

_MERGED_BY = {"conditions": "type", "containers": "name", "ownerReferences": "uid", "taints": "key"}


def merge(target: Any, patch: Any, *, strategic: bool) -> Any:
    """`target` with `patch` laid over it."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif strategic and isinstance(value, list) and key in _MERGED_BY:
            merged[key] = _merge_lists(merged.get(key) or [], value, _MERGED_BY[key])
        else:
            merged[key] = merge(merged.get(key), value, strategic=strategic)
    return merged


def _merge_lists(target: list[Any], patch: list[Any], by: str) -> list[Any]:
    merged = list(target)
    for value in patch:
        places = [at for at, each in enumerate(merged) if each.get(by) == value.get(by)]
        deletes = value.get("$patch") == "delete"
        if places and deletes:
            del merged[places[0]]
        elif places:
            merged[places[0]] = merge(merged[places[0]], value, strategic=True)
        elif not deletes:
            merged.append(value)
    return merged
