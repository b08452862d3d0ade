"""A reflector over the fake API server, and a sink that keeps what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from autoscale_enforcer.background import Background
from autoscale_enforcer.cluster.kubernetes import paths
from autoscale_enforcer.cluster.kubernetes.answers import Action, BadObject, Changed
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.reflector import Reflector, ReflectorSettings
from autoscale_enforcer.cluster.kubernetes.transport import ApiSettings
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.objects.pods import read_pod
from autoscale_enforcer.objects.shapes import PodObject
from tests.support.fake_api.server import FakeApi

QUICK = ReflectorSettings(
    watch_lasts=timedelta(seconds=60),
    pause=timedelta(milliseconds=20),
    longest_pause=timedelta(milliseconds=40),
)
"""Pauses of milliseconds, and watches that end only when they are made to."""


@dataclass
class Told:
    """What a sink was told, oldest first, as words; and the pods as they must be by that."""

    words: list[str] = field(default_factory=list)
    pods: dict[str, PodFact] = field(default_factory=dict)
    """By UID."""
    refused: list[BadObject] = field(default_factory=list)
    trouble: list[Exception] = field(default_factory=list)
    """What the next events meet, one each."""
    _more: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def replace(self, items: Sequence[PodFact], resource_version: str) -> None:
        names = ",".join(sorted(pod.name for pod in items))
        await self._tell(f"list {resource_version} {names}".rstrip())
        self.pods = {pod.uid: pod for pod in items}

    async def apply(self, event: Changed[PodFact]) -> None:
        if self.trouble:
            raise self.trouble.pop()
        pod = event.object
        if event.action is Action.DELETED:
            self.pods.pop(pod.uid, None)
        else:
            self.pods[pod.uid] = pod
        await self._tell(f"{event.action} {pod.name}")

    async def bad(self, found: BadObject) -> None:
        self.refused.append(found)
        await self._tell(f"bad {found.name}")

    async def _tell(self, word: str) -> None:
        async with self._more:
            self.words.append(word)
            self._more.notify_all()

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until it is true, looking whenever something is told."""
        async with self._more:
            await self._more.wait_for(condition)

    async def until_told(self, *words: str) -> None:
        """Wait until all of these were told, in any order."""
        await self.until(lambda: set(words) <= set(self.words))

    @property
    def names(self) -> set[str]:
        return {pod.name for pod in self.pods.values()}

    @property
    def lists(self) -> int:
        return sum(word.startswith("list") for word in self.words)


Follower = Reflector[PodObject, PodFact]


@asynccontextmanager
async def following(
    api: FakeApi,
    told: Told,
    *,
    settings: ReflectorSettings = QUICK,
    limits: ApiSettings | None = None,
    path: str = paths.PODS,
    **changes: Any,
) -> AsyncIterator[Follower]:
    """A reflector of pods that runs meanwhile; entered before its first list."""
    async with KubeApi(api.access(), limits) as client:
        follower = Reflector(
            client,
            path=path,
            kind=PodObject,
            read=read_pod,
            sink=told,
            settings=replace(settings, **changes),
        )
        async with Background() as background:
            background.start("reflector", follower.run)
            yield follower
