"""Who leads, how the books are built and settled, whose they are, and the last good config."""

from __future__ import annotations

import secrets
from datetime import timedelta

from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.call import Call
from autoscale_enforcer.ledger.calls import Calls, Leadership, pack
from autoscale_enforcer.ledger.outcomes import Keep, Lead
from autoscale_enforcer.ledger.schema import SCHEMA, SCHEMAS, mismatch
from autoscale_enforcer.ledger.told import Loss, Told

TRIM_LIMIT = 20_000
"""Nodes looked at in one trim; four times the largest cluster that Kubernetes supports."""


class Leading(Calls):
    """What a leader does to the ledger as a whole."""

    async def take_lease(self, *, holder: str, token: str, lifetime: timedelta) -> tuple[Lead, str]:
        """Lead, or go on leading; who leads, where it is another. Safe to repeat: it renews."""
        word, *rest = await self._run_unguarded(
            "take_lease",
            holder=holder,
            token=token,
            lease_ms=int(lifetime.total_seconds() * 1000),
        )
        return Lead(word), rest[0].decode() if rest else holder

    async def drop_lease(self, *, token: str) -> Lead:
        """Stop leading, so that another may lead at once. Safe to repeat."""
        word, *_ = await self._run_unguarded("drop_lease", token=token)
        return Lead(word)

    async def lose_books(self, leader: Leadership, *, why: str) -> timedelta | None:
        """Have no replica believe the books any more; for how long they are lost, None if fenced.

        Counted by Redis from whoever noticed first, until the next books are there; books that are
        lost already stay so. Safe to repeat.
        """
        word, *rest = await self._run_unguarded(
            "lose_books",
            token=leader.token,
            most=self.settings.journal_length,
            context=pack({"why": why}),
        )
        if Lead(word) is Lead.FENCED:
            return None
        return timedelta(microseconds=max(0, self.pipeline.redis_us() - rest[0] * 1000))

    async def begin_build(self, leader: Leadership) -> Leadership | None:
        """Empty the keys beside the books; the leadership to load facts with, None if fenced."""
        epoch = secrets.token_hex(6)
        word, *_ = await self._run_unguarded("begin_build", token=leader.token, epoch=epoch)
        return Leadership(leader.token, epoch) if Lead(word) is Lead.BUILDING else None

    async def load_row(
        self, kind: str, name: str, row: str, blob: bytes, *, leader: Leadership
    ) -> Lead:
        """Put one exported row beside the books."""
        word, *_ = await self._run_unguarded(
            "load_row", token=leader.token, kind=kind, id=name, row=row, blob=blob
        )
        return Lead(word)

    async def publish_build(self, leader: Leadership, *, suspect: bool = False) -> Lead:
        """Put what was built in the place of the books, in one step."""
        word, *_ = await self._run_unguarded(
            "publish_build",
            token=leader.token,
            state="suspect" if suspect else "settled",
            settle_after_ms=int(self.settings.settle_after.total_seconds() * 1000),
            watch=int(self.pipeline.watch_replid),
            most=self.settings.journal_length,
        )
        return Lead(word)

    async def migrate(self, found: int) -> Lead:
        """Rewrite the rows of an older release, step by step; how the last step ended.

        Any replica may, and several may at once: each step is done once. Takes Redis seconds where
        there are 150,000 pods: LedgerUnavailable may mean that it is not over yet. It also means a
        release that is too old.
        """
        answer = Lead.NOTHING
        for schema in range(found, SCHEMA):
            answer = await self._migrate_one(schema)
        return answer

    async def _migrate_one(self, schema: int) -> Lead:
        old, new = SCHEMAS.get(schema), SCHEMAS.get(schema + 1)
        if old is None or new is None:
            reason = "its release is too old for this one: run one in between first"
            raise LedgerUnavailable(f"{mismatch(schema)}, and {reason}")
        arguments: dict[str, str | int | bytes] = {
            "from": schema,
            "to": schema + 1,
            "node_fields": old.nodes.names,
            "node_wanted": new.nodes.wanted,
            "pod_fields": old.pods.names,
            "pod_wanted": new.pods.wanted,
            "new_epoch": secrets.token_hex(6),
            "most": self.settings.journal_length,
        }
        word, *_ = await self._send("migrate_ledger", arguments, guarded=False, any_schema=True)
        return Lead(word)

    async def settle_ledger(self, leader: Leadership, *, epoch: str = "") -> Lead:
        """Tell that the suspect books have been compared with the cluster. Safe to repeat.

        With an epoch: those of that epoch only; LedgerUnavailable where another has begun.
        """
        arguments: dict[str, str | int | bytes] = {
            "token": leader.token,
            "settle_after_ms": int(self.settings.settle_after.total_seconds() * 1000),
            "most": self.settings.journal_length,
        }
        if epoch:
            arguments["epoch"] = epoch
        word, *_ = await self._send("settle_ledger", arguments, with_epoch=not epoch)
        return Lead(word)

    async def trim_changes(self, leader: Leadership, *, before: int) -> Keep:
        """Forget removed nodes up to this version, which every replica has passed."""
        word, *_ = await self._run(
            "trim_changes", token=leader.token, before=before, limit=TRIM_LIMIT
        )
        return Keep(word)

    async def claim(self, cluster_uid: str) -> tuple[Keep, str]:
        """Make the ledger this cluster's; whose it is, where it is another's. Safe to repeat."""
        word, *rest = await self._run_unguarded("claim_ledger", cluster=cluster_uid)
        return Keep(word), rest[0].decode() if rest else cluster_uid

    def note_loss(self, told: Told, loss: Loss) -> None:
        """Have it in the journal that a primary lacks what was told, or may; nobody waits."""
        arguments: dict[str, str | int | bytes] = {
            "loss": loss.value,
            "told": told.place,
            "most": self.settings.journal_length,
        }
        script = self.pipeline.script("note_loss")
        self.pipeline.send(Call(script, lambda _: arguments, guarded=False))

    async def put_config(self, *, version: str, text: bytes) -> Keep:
        """Keep the last good config, for replicas that start beside a bad one."""
        word, *_ = await self._run_unguarded("put_config", version=version, text=text)
        return Keep(word)

    async def read_config(self) -> tuple[str, bytes] | None:
        """The last good config and its version; None: none was ever kept."""
        word, *rest = await self._run_unguarded("read_config")
        return (rest[0].decode(), rest[1]) if word == "CONFIG" else None
