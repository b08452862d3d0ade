"""Identifiers as types of their own, so that a name never passes where a UID is meant."""

from __future__ import annotations

from typing import NewType

PodUid = NewType("PodUid", str)
NodeName = NewType("NodeName", str)

PodName = NewType("PodName", str)
"""`namespace/name`, as agents and people name a pod."""


def pod_name(namespace: str, name: str) -> PodName:
    """The `namespace/name` form."""
    return PodName(f"{namespace}/{name}")
