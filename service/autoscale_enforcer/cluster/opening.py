"""Opens the cluster that the settings name: its source, its upkeep, and the chores of a leader."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path

from autoscale_enforcer.background import Background
from autoscale_enforcer.cluster.differences import Difference
from autoscale_enforcer.cluster.file_source import FileSource
from autoscale_enforcer.cluster.kubernetes.access import find_access
from autoscale_enforcer.cluster.kubernetes.budget import BudgetSettings, ReadBudget
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.config_map import ConfigMapWatch
from autoscale_enforcer.cluster.kubernetes.differing import find_differences
from autoscale_enforcer.cluster.kubernetes.own_pods import AgentsLabel, OwnPod, RoomBell
from autoscale_enforcer.cluster.kubernetes.reconciler import Reconciler, ReconcilerSettings
from autoscale_enforcer.cluster.kubernetes.source import KubernetesSource
from autoscale_enforcer.cluster.kubernetes.token_review import TokenReviews
from autoscale_enforcer.cluster.list_differences import list_differences
from autoscale_enforcer.cluster.room import LOOK_EVERY, RoomWatch
from autoscale_enforcer.cluster.source import ClusterSource
from autoscale_enforcer.cluster.upkeep import ListUpkeep, Upkeep
from autoscale_enforcer.config.access_settings import AccessSettings
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.config.settings import KubernetesSettings, Settings
from autoscale_enforcer.errors import (
    ClusterUnavailable,
    ConfigError,
    LedgerUnavailable,
    LedgerUnfit,
    ObjectError,
)
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Keep
from autoscale_enforcer.objects.listing import ClusterListing, read_cluster

log = logging.getLogger(__name__)

KUBERNETES = "kubernetes"
RETRY_AFTER = 1.0
"""Seconds between attempts to reach an API server or a Redis that is away at the start."""
LABEL_EVERY = 3.0
"""Seconds between looks at which pod agents are led to."""
KEEP_CONFIG_EVERY = 30.0
"""Seconds after which a ledger that was lost has the last good config again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """Something that a leader does once in a while."""

    name: str
    do: Callable[[], Awaitable[object]]
    every: float
    """Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCluster:
    """A cluster that can be asked."""

    source: ClusterSource
    upkeep: Upkeep
    differences: Callable[[], Awaitable[list[Difference]]]
    """What a full compare would change now; asks the cluster, changes nothing."""
    chores: tuple[Chore, ...] = ()
    bind_budget: timedelta = timedelta(0)
    reviews: TokenReviews | None = None
    """Where agents must bring tokens."""


async def open_cluster(
    stack: AsyncExitStack,
    background: Background,
    settings: Settings,
    ledger: Ledger,
    config: LiveConfig,
) -> OpenCluster:
    """The cluster of the settings, its config taken; what it needs is closed with the stack.

    Raises ConfigError where it cannot be used, or where the ledger is another cluster's. Waits
    while the API server or Redis is away.
    """
    replica = settings.replica
    if not replica.cluster:
        raise ConfigError([f"replica.cluster: is required: {KUBERNETES} or file:PATH"])
    if replica.config:
        _take_file(config, replica.config)
    if replica.cluster != KUBERNETES:
        if settings.access.agent_accounts:
            raise ConfigError(["access.agent_accounts: needs replica.cluster kubernetes"])
        listing = read_listing(Path(replica.cluster.removeprefix("file:")))
        source = FileSource(listing, ledger, without_pods=replica.without_pods)
        return OpenCluster(
            source=source,
            upkeep=ListUpkeep(ledger, source, config),
            differences=partial(list_differences, ledger, source, config),
        )
    kube = settings.kubernetes
    access = await find_access(
        os.environ, kubeconfig=str(kube.kubeconfig or ""), context=kube.context
    )
    budget = ReadBudget(BudgetSettings(per_second=kube.reads_per_second))
    api = await stack.enter_async_context(KubeApi(access, budget=budget))
    live = KubernetesSource(api)
    await _claim(live, ledger)
    chores = []
    if not replica.config:
        watch = ConfigMapWatch(api, config, ledger)
        background.start("config", watch.run)
        await watch.first()
        chores.append(Chore(name="keep config", do=watch.keep, every=KEEP_CONFIG_EVERY))
    reconciler = Reconciler(
        api,
        live,
        ledger,
        config,
        replica=replica.name,
        settings=ReconcilerSettings(compare_every=kube.compare_every),
    )
    return OpenCluster(
        source=live,
        upkeep=reconciler,
        differences=partial(find_differences, api, ledger, config),
        chores=(*chores, *_chores(api, kube, ledger, config, reconciler)),
        bind_budget=kube.bind_budget,
        reviews=_reviews(api, settings.access),
    )


def _reviews(api: KubeApi, access: AccessSettings) -> TokenReviews | None:
    if not access.agent_accounts:
        return None
    return TokenReviews(api, access.agent_accounts, audience=access.agent_audience)


def read_listing(path: Path) -> ClusterListing:
    """A cluster file; ConfigError where it is none. What cannot be read in it is logged."""
    try:
        listing = read_cluster(path.read_bytes())
    except OSError as error:
        raise ConfigError([f"replica.cluster: {path}: {error.strerror}"]) from error
    except ObjectError as error:
        raise ConfigError([f"replica.cluster: {path}: {error}"]) from error
    for bad in listing.bad:
        log.warning("cluster file: %s", bad.describe())
    return listing


def _take_file(config: LiveConfig, path: Path) -> None:
    """Its version is made of what is in it: the same at every replica that has the file, and in no
    order with others, for a file may be taken back, or left for the ConfigMap.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError([f"config: {path}: {error.strerror}"]) from error
    if not config.offer(content, version=f"file-{sha256(content).hexdigest()[:12]}"):
        raise ConfigError([f"config: {path}: {problem}" for problem in config.problems])
    if config.current.unused_fields:
        log.info("config: without meaning here: %s", ", ".join(config.current.unused_fields))


async def _claim(source: KubernetesSource, ledger: Ledger) -> None:
    while True:
        try:
            cluster = await source.cluster_uid()
            keep, owner = await ledger.claim(cluster)
        except LedgerUnfit as error:
            raise error.at_start() from error
        except (ClusterUnavailable, LedgerUnavailable) as error:
            log.warning("waiting: %s", error)
            await asyncio.sleep(RETRY_AFTER)
            continue
        if keep is Keep.FOREIGN:
            words = f"the ledger is that of the cluster {owner}, this one is {cluster}"
            raise ConfigError([f"redis.cluster_name: {words}: give each a name of its own"])
        return


def _chores(
    api: KubeApi,
    settings: KubernetesSettings,
    ledger: Ledger,
    config: LiveConfig,
    reconciler: Reconciler,
) -> tuple[Chore, ...]:
    if not settings.pod_name:
        log.info("no pod name: no pod is touched when room comes back, none is labelled for agents")
        return ()
    own = OwnPod(
        namespace=settings.pod_namespace, name=settings.pod_name, selector=settings.pod_selector
    )
    room = RoomWatch(
        ledger, is_wanted=lambda: bool(reconciler.pending), ring=RoomBell(api, own).ring
    )
    label = AgentsLabel(api, own)

    async def keep_label() -> None:
        if config.current.scheduler_name:
            await label.look(config.current.scheduler_name)

    return (
        Chore(name="room", do=room.look, every=LOOK_EVERY),
        Chore(name="agents label", do=keep_label, every=LABEL_EVERY),
    )
