"""What operators order: grants stopped and let go on, a leftover given up, a compare asked for."""

from __future__ import annotations

from typing import Any

from autoscale_enforcer.ledger.calls import Calls, Context, Leadership, pack
from autoscale_enforcer.ledger.freezes import EVERYWHERE, Freeze
from autoscale_enforcer.ledger.outcomes import Compare, Lead, Order, Release
from autoscale_enforcer.model.ids import NodeName, PodUid


class Orders(Calls):
    """Freeze and thaw need no books: they hold while none are built, and for what is built anew."""

    async def freeze_grants(
        self, node: NodeName | None, *, context: Context, dry_run: bool = False
    ) -> tuple[Order, Freeze | None]:
        """Stop grants on a node, or everywhere; the freeze that was there before, where one was.

        Safe to repeat: the first one stands.
        """
        name = node or EVERYWHERE
        word, *note = await self._order("freeze_grants", context, node=name, dry=int(dry_run))
        return Order(word), Freeze.decode(name.encode(), note[0]) if note else None

    async def thaw_grants(
        self, node: NodeName | None, *, context: Context, dry_run: bool = False
    ) -> tuple[Order, Freeze | None]:
        """End a freeze of that node, or that of everything; the freeze that ended. Safe to repeat.

        Ending that of everything leaves those of single nodes.
        """
        name = node or EVERYWHERE
        word, *note = await self._order("thaw_grants", context, node=name, dry=int(dry_run))
        return Order(word), Freeze.decode(name.encode(), note[0]) if note else None

    async def release_leftover(self, uid: PodUid, *, context: Context) -> Release:
        """Free what a pod holds that a live read has proved to be finished or gone.

        Safe to repeat, ever: such a UID does not come back.
        """
        word, *_ = await self._promise("release_leftover", context, uid=uid)
        return Release(word)

    async def ask_compare(self, *, context: Context) -> int:
        """Ask whoever leads to compare the ledger with the cluster; the number of the request.

        Safe to repeat: requests that no compare has begun for are answered by the same one.
        """
        _, asked = await self._order("ask_compare", context)
        return int(asked)

    async def read_compare(self) -> Compare:
        """What was asked and what was answered last."""
        _, asked, done, replica, mended = await self._run_unguarded("read_compare")
        return Compare(int(asked), int(done), replica.decode(), int(mended))

    async def note_compared(
        self, leader: Leadership, *, asked: int, replica: str, mended: int
    ) -> Lead:
        """Answer every request up to this one. Safe to repeat."""
        word, *_ = await self._run_unguarded(
            "note_compared", token=leader.token, asked=asked, replica=replica, mended=mended
        )
        return Lead(word)

    async def _order(
        self, script: str, context: Context, **arguments: str | int | bytes
    ) -> list[Any]:
        arguments |= {"most": self.settings.journal_length, "context": pack(context)}
        return await self._send(script, arguments, guarded=False, tells=True)
