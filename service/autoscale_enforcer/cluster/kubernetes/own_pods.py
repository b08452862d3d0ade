"""What the leader does to the service's own pods: the label that agents follow, and a touch that
makes kube-scheduler look again.

Agents up to v0.19 refuse more than one ready pod with the label `name=<schedulerName>`, later ones
take the newest; so exactly one has it, and it is taken off one pod before it is put on another.
A label of another `schedulerName` goes, too, where an annotation says that we gave it: a label
`name` that somebody else gave may be what a ReplicaSet knows its pods by.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.paths import (
    MERGE_PATCH,
    own_pods_path,
    pod_path,
)
from autoscale_enforcer.errors import ClusterUnavailable
from autoscale_enforcer.model.ids import PodName, pod_name
from autoscale_enforcer.objects.shapes import Metadata, PodObject

AGENTS_LABEL = "name"
GIVEN_ANNOTATION = "autoscale-enforcer/agents-label"
"""Value of the label that we gave."""
ELSEWHERE_ANNOTATION = "autoscale-enforcer/agents-label-elsewhere"
"""Which other pod was given the label, and when."""
ROOM_ANNOTATION = "autoscale-enforcer/room-came-back"
MISSES_ALLOWED = 1
"""Looks that a labelled pod may fail before another takes over: one missed probe is no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPod:
    """The pod that this replica is, as the deployment names it to us."""

    namespace: str
    name: str
    selector: str
    """Label selector of all replicas' pods."""

    @property
    def full_name(self) -> PodName:
        """`namespace/name`."""
        return pod_name(self.namespace, self.name)


class RoomBell:
    """Touches this replica's pod, after which kube-scheduler tries refused pods again."""

    def __init__(self, api: KubeApi, own: OwnPod) -> None:
        self._api, self._own = api, own

    async def ring(self) -> None:
        """One write; ClusterUnavailable where it was not done."""
        body = {"metadata": {"annotations": {ROOM_ANNOTATION: f"{time.time():.6f}"}}}
        reply = await self._api.patch(pod_path(self._own.full_name), body, MERGE_PATCH)
        if reply.status != 200:
            raise ClusterUnavailable(f"patch pods: {reply.status} {reply.message}")


class AgentsLabel:
    """Keeps the label that agents follow on exactly one ready pod."""

    def __init__(self, api: KubeApi, own: OwnPod) -> None:
        self._api, self._own = api, own
        self._misses = 0

    async def look(self, scheduler_name: str) -> str:
        """Look once, and change what has to be changed; the name of the pod that has the label."""
        listing = await self._api.list_all(
            own_pods_path(self._own.namespace, self._own.selector), PodObject
        )
        holders = [pod for pod in listing.items if _label(pod) == scheduler_name]
        ready = [pod for pod in listing.items if is_ready(pod)]
        chosen = self._chosen(holders, ready)
        for pod in listing.items:
            if chosen is None or _name(pod) != _name(chosen):
                await self._leave_out(pod, chosen, scheduler_name)
        if chosen is not None and not (_is_given(chosen) and _label(chosen) == scheduler_name):
            await self._set(chosen, scheduler_name)
        return _name(chosen) if chosen else ""

    def _chosen(self, holders: Sequence[PodObject], ready: Sequence[PodObject]) -> PodObject | None:
        """Who has it keeps it, over one missed probe too; else the first of the ready ones."""
        names = {_name(pod) for pod in ready}
        kept = [pod for pod in holders if _name(pod) in names]
        if kept:
            self._misses = 0
            return min(kept, key=_name)
        if holders and not _is_ending(holders[0]) and self._misses < MISSES_ALLOWED:
            self._misses += 1
            return holders[0]
        self._misses = 0
        return min(ready, key=_name, default=None)

    async def _leave_out(
        self, pod: PodObject, chosen: PodObject | None, scheduler_name: str
    ) -> None:
        """It is not to have the label, now or by a leader of before that was about to give it."""
        if _label(pod) == scheduler_name or _is_given(pod):
            await self._set(pod, None)
        elif chosen and _label(chosen) != scheduler_name and is_ready(pod):
            # That leader saw an older version of it; one that has just been quicker shows here, as
            # a conflict.
            elsewhere = f"{_name(chosen)} {time.time():.6f}"
            await self._patch(pod, {"annotations": {ELSEWHERE_ANNOTATION: elsewhere}})

    async def _set(self, pod: PodObject, value: str | None) -> None:
        annotations = {GIVEN_ANNOTATION: value}
        await self._patch(pod, {"labels": {AGENTS_LABEL: value}, "annotations": annotations})

    async def _patch(self, pod: PodObject, changes: dict[str, object]) -> None:
        metadata = pod.metadata or Metadata()
        # With the version that was seen: a leader that was overtaken meanwhile changes nothing.
        body = {"metadata": {**changes, "resourceVersion": metadata.resource_version}}
        path = pod_path(pod_name(self._own.namespace, _name(pod)))
        reply = await self._api.patch(path, body, MERGE_PATCH)
        if reply.status not in (200, 404):
            raise ClusterUnavailable(f"patch pods: {reply.status} {reply.message}")


def is_ready(pod: PodObject) -> bool:
    """Its Ready condition is true and it is not about to end."""
    conditions = (pod.status.conditions if pod.status else None) or ()
    return not _is_ending(pod) and any(
        each.type == "Ready" and each.status == "True" for each in conditions
    )


def _is_ending(pod: PodObject) -> bool:
    return pod.metadata is not None and pod.metadata.deletion_timestamp is not None


def _label(pod: PodObject) -> str | None:
    return ((pod.metadata.labels if pod.metadata else None) or {}).get(AGENTS_LABEL)


def _is_given(pod: PodObject) -> bool:
    """Its label is one that we gave."""
    given = ((pod.metadata.annotations if pod.metadata else None) or {}).get(GIVEN_ANNOTATION)
    return given is not None and given == _label(pod)


def _name(pod: PodObject) -> str:
    return (pod.metadata.name if pod.metadata else None) or ""
