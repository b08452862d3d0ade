"""The ConfigMap with the scheduler config: watched by every replica, taken without a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

from autoscale_enforcer.cluster.kubernetes.answers import Action, BadObject, Changed
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.paths import one_config_map_path
from autoscale_enforcer.cluster.kubernetes.reflector import Reflector, ReflectorSettings
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.errors import ConfigError, LedgerUnavailable
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.objects.shapes import ConfigMapObject

log = logging.getLogger(__name__)

NAMESPACE, NAME = "kube-system", "scheduler-plugin-config"
KEYS = ("autoscaler-enforcer-config.json", "autoscale-enforcer-config.json")
"""The published spelling, and the later one."""

WAIT_FOR_FIRST = 5.0
"""Seconds, the reference's own: after that a replica without a config ends."""

FOLLOWED = ReflectorSettings(watch_lasts=timedelta(seconds=60), list_every=timedelta(seconds=90))
"""One object, so a list is a small read. Nothing else compares: what a watch does not tell, be it
silent, refused or the API server set back, is known by the list after it, within five minutes."""

RETRY_AFTER = 0.5
"""Seconds between attempts to read the last good config while Redis is away."""


class ConfigMapWatch:
    """Offers each version of the ConfigMap to the live config."""

    def __init__(self, api: KubeApi, live: LiveConfig, ledger: Ledger) -> None:
        self._live, self._ledger = live, ledger
        self._reflector = Reflector(
            api,
            path=one_config_map_path(NAMESPACE, NAME),
            kind=ConfigMapObject,
            read=_as_it_is,
            sink=self,
            settings=FOLLOWED,
        )
        self._has_come = asyncio.Event()
        self._offered = ""
        self._held: tuple[str, bytes] | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._reflector.run()

    async def first(self) -> None:
        """Wait for a config that can be used; the last good one stands in for a bad one.

        Raises ConfigError where none came in time.
        """
        try:
            async with asyncio.timeout(WAIT_FOR_FIRST):
                await self._has_come.wait()
        except TimeoutError:
            if not self._live.problems:
                where = f"ConfigMap {NAMESPACE}/{NAME}"
                words = f"config: {where} has not come in {WAIT_FOR_FIRST:g} s"
                raise ConfigError([words]) from None
        if not self._live.version:
            await self._take_last_good()

    async def _take_last_good(self) -> None:
        problems = self._live.problems
        kept = await self._read_kept()
        if kept is None or not self._live.offer(kept[1], version=kept[0]):
            raise ConfigError([f"config: {problem}" for problem in problems])
        self._live.problems = problems
        log.warning("config: the ConfigMap is bad, the last good one of version %s holds", kept[0])

    async def _read_kept(self) -> tuple[str, bytes] | None:
        while True:
            try:
                return await self._ledger.read_config()
            except LedgerUnavailable as error:
                log.warning("config: waiting for the last good one: %s", error)
                await asyncio.sleep(RETRY_AFTER)

    async def keep(self) -> None:
        """Keep the config that holds in the ledger, which may have lost it. Safe to repeat.

        Raises LedgerUnavailable.
        """
        if self._held:
            version, content = self._held
            await self._ledger.put_config(version=version, text=content)

    async def replace(self, items: Sequence[ConfigMapObject], resource_version: str) -> None:
        """The ConfigMap as it is now, or none: what holds stays."""
        del resource_version
        for found in items:
            await self._offer(found)

    async def apply(self, event: Changed[ConfigMapObject]) -> None:
        """A change; a config that was deleted holds until there is another."""
        if event.action is not Action.DELETED:
            await self._offer(event.object)

    async def bad(self, found: BadObject) -> None:
        """What holds stays; the reflector has told people."""

    async def _offer(self, found: ConfigMapObject) -> None:
        data = found.data or {}
        content = next((data[key] for key in KEYS if key in data), None)
        version = (found.metadata.resource_version if found.metadata else None) or ""
        if version == self._offered:
            return
        self._offered = version
        if content is None:
            # At the start the key may come a little later; that is waited for.
            self._live.refuse([f"data: has no key {KEYS[0]}"])
        else:
            self._has_come.set()
        if content is not None and self._live.offer(content.encode(), version=version):
            log.info("config: version %s holds", version)
            self._held = (version, content.encode())
            await self._try_to_keep()
        else:
            for problem in self._live.problems:
                log.error("config: version %s is kept out: %s", version, problem)

    async def _try_to_keep(self) -> None:
        try:
            await self.keep()
        except LedgerUnavailable as error:
            log.warning("config: not kept for other replicas yet: %s", error)


def _as_it_is(found: ConfigMapObject) -> ConfigMapObject:
    return found
