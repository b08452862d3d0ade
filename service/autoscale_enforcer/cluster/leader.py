"""One replica at a time leads: it builds the ledger, compares it, follows the cluster, sweeps.

Which one is decided by the lease in Redis; every fact carries the lease's token, so a former
leader that wakes up writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta

from autoscale_enforcer.cluster.sweep import Sweeper
from autoscale_enforcer.cluster.upkeep import BooksIncomplete, ClusterWentBack, LostLead, Upkeep
from autoscale_enforcer.errors import ClusterUnavailable, LedgerUnavailable
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.exchange import Guard
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Compare, Lead

log = logging.getLogger(__name__)

REMEMBERED_FOR = 300.0
"""Seconds that a removed node stays in the deltas: longer than any replica goes without a look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings:
    """How leading is shared."""

    replica: str
    lease_lifetime: timedelta
    renew_every: timedelta
    sweep_every: timedelta
    bind_budget: timedelta = timedelta(0)
    """How long a Binding may be on its way: so long after a loss the cluster is not believed."""


class Leader:
    """Leads where no other replica does. `run` until cancelled, then `resign`."""

    def __init__(
        self,
        ledger: Ledger,
        upkeep: Upkeep,
        sweeper: Sweeper,
        *,
        settings: LeaderSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._upkeep, self._sweeper = ledger, upkeep, sweeper
        self._settings, self._clock = settings, clock
        self._token = ""
        self._has_caught_up = False
        self._is_blind = True
        self._disbelieved = ""
        """Why the books that are there are not believed any more."""
        self._next_sweep = self._renewed_at = 0.0
        self._sweeping: asyncio.Task[None] | None = None
        self._versions: deque[tuple[float, int]] = deque()

    @property
    def is_leading(self) -> bool:
        """It leads, and the ledger is at what the cluster says."""
        fresh = self._clock() - self._renewed_at < self._settings.lease_lifetime.total_seconds()
        return self._has_caught_up and fresh

    async def run(self) -> None:
        """Take the lease, or keep it, and do what has to be done; for ever."""
        try:
            while True:
                await self._try_turn()
                await asyncio.sleep(self._settings.renew_every.total_seconds())
        finally:
            # Whatever ended it: begun again, it begins with the lease and a list.
            await self.resign()

    async def _try_turn(self) -> None:
        try:
            await self._turn()
        except LostLead:
            await self._end()
        except LedgerUnavailable as error:
            log.warning("leader: %s", error)
        except ClusterUnavailable as error:
            # Another replica may see the cluster; this one leads again only after a list.
            log.warning("leader: %s; the lease is given up", error)
            self._is_blind = True
            await self.resign()
        except ClusterWentBack as error:
            self._disbelieve(f"the cluster went back: {error}")
        except BooksIncomplete as error:
            self._disbelieve(f"keys are gone: {error}")

    def _disbelieve(self, why: str) -> None:
        log.warning("leader: %s; the ledger is built anew", why)
        self._disbelieved = why

    async def resign(self) -> None:
        """Let another replica lead at once."""
        token = self._token
        await self._end()
        if token:
            try:
                await self._ledger.drop_lease(token=token)
            except LedgerUnavailable:
                return

    async def _end(self) -> None:
        self._token, self._has_caught_up = "", False
        await self._end_sweep()
        await self._upkeep.stop()

    async def _turn(self) -> None:
        if self._is_blind:
            await self._upkeep.reach()
            self._is_blind = False
        guard = await self._look()
        # Kept from here on, or a turn that fails below would lock its own successor out.
        self._token = self._token or secrets.token_hex(8)
        await self._renew()
        leader, wanted = Leadership(self._token), await self._ledger.read_compare()
        mended = self._mended()
        if guard.state == "UNBUILT" or self._disbelieved:
            self._has_caught_up = False
            await self._while_leading(self._build(leader))
            self._disbelieved = ""
        elif guard.state == "SUSPECT" or self._is_due(wanted):
            await self._while_leading(self._compare(leader, guard), on_books=True)
        else:
            self._upkeep.check()
        self._has_caught_up = True
        if wanted.is_open:
            await self._tell_compared(leader, wanted, self._mended() - mended)
        if self._clock() >= self._next_sweep:
            self._next_sweep = self._clock() + self._settings.sweep_every.total_seconds()
            self._begin_sweep()
            await self._trim(leader, guard.version)

    async def _look(self) -> Guard:
        """What books there are; those of an older release are migrated first, by whoever comes."""
        guard = await self._ledger.look()
        if guard.state == "OLDER":
            ended = await self._ledger.migrate(guard.version)
            log.warning("the ledger of an older release: %s: %s", guard.why_not, ended)
            guard = await self._ledger.look()
        if guard.why_not:
            raise LedgerUnavailable(guard.why_not)
        return guard

    def _is_due(self, wanted: Compare) -> bool:
        return wanted.is_open or not self._has_caught_up or self._upkeep.is_due()

    async def _tell_compared(self, leader: Leadership, wanted: Compare, mended: int) -> None:
        replica = self._settings.replica
        await self._ledger.note_compared(leader, asked=wanted.asked, replica=replica, mended=mended)

    def _mended(self) -> int:
        return int(self._upkeep.readings().get("repaired_rows", 0))

    async def _while_leading(
        self, work: Coroutine[None, None, None], *, on_books: bool = False
    ) -> None:
        """Do something long, and keep the lease meanwhile. With `on_books` it ends as
        LedgerUnavailable when there are none any more: what waits for them would wait for us.
        """
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=self._settings.renew_every.total_seconds())
                if not task.done():
                    await self._renew()
                    if on_books and (await self._ledger.look()).state == "UNBUILT":
                        raise LedgerUnavailable("the books are gone, and will be built")
            task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _begin_sweep(self) -> None:
        """Sweep, unless that is under way; raises what ended the last sweep.

        Beside the turns: with an API that hangs, each of its reads lasts as long as it may, and
        nobody would look at the watches meanwhile, nor at what operators ask.
        """
        last = self._sweeping
        if last and not last.done():
            return
        self._sweeping = None
        if last:
            last.result()
        self._sweeping = asyncio.create_task(self._sweeper.sweep(), name="sweep")

    async def _end_sweep(self) -> None:
        """Leave the rest to the next one; what one hold needs is safe to begin again."""
        ended, self._sweeping = self._sweeping, None
        if ended:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)

    async def _renew(self) -> None:
        asked_at = self._clock()  # an answer that came late must not make the lease look longer
        lead, _ = await self._ledger.take_lease(
            holder=self._settings.replica,
            token=self._token,
            lifetime=self._settings.lease_lifetime,
        )
        if lead is not Lead.LEADER:
            raise LostLead
        self._renewed_at = asked_at

    async def _build(self, leader: Leadership) -> None:
        await self._end_sweep()  # What it found is of the books that are given up.
        why = self._disbelieved or "no books are there"
        lost_for = await self._ledger.lose_books(leader, why=why)
        if lost_for is None:
            raise LostLead
        # A Binding of the lost books may be on its way, whichever replica sent it or leads by now.
        wait = self._settings.bind_budget - lost_for
        await asyncio.sleep(max(0.0, wait.total_seconds()))
        building = await self._ledger.begin_build(leader)
        if building is None:
            raise LostLead
        await self._upkeep.build(building)
        if await self._ledger.publish_build(building) is not Lead.PUBLISHED:
            raise LostLead
        self._upkeep.go_live(leader)
        self._versions.clear()
        log.info("leader: the ledger is built")

    async def _compare(self, leader: Leadership, guard: Guard) -> None:
        if guard.state == "SUSPECT":
            await asyncio.sleep(self._settings.bind_budget.total_seconds())
        await self._upkeep.compare(leader)
        if guard.state == "SUSPECT":
            # Not an epoch that began meanwhile: that one was not compared.
            await self._ledger.settle_ledger(leader, epoch=guard.epoch)

    async def _trim(self, leader: Leadership, version: int) -> None:
        """Forget removed nodes that every replica has heard of."""
        now = self._clock()
        self._versions.append((now, version))
        passed = 0
        while self._versions and now - self._versions[0][0] > REMEMBERED_FOR:
            _, passed = self._versions.popleft()
        if passed:
            await self._ledger.trim_changes(leader, before=passed)
