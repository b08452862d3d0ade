"""One typed method for each script: what may be asked of the ledger, and what it answers.

Every method raises LedgerUnavailable where no answer came or no books are built; a change may
then be in the books all the same, and asking again with the same stamp is safe.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import msgpack
import msgspec

from autoscale_enforcer.ledger.connection import ConnectionSettings, connector
from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.mirror import Mirror
from autoscale_enforcer.ledger.outcomes import (
    Confirm,
    Fact,
    Keep,
    KnownPod,
    Lapsed,
    Lead,
    Permit,
    PermitAnswer,
    Release,
    Reserve,
    ReserveAnswer,
)
from autoscale_enforcer.ledger.pipeline import Call, Guard, Pipeline
from autoscale_enforcer.ledger.scripts import load_scripts
from autoscale_enforcer.model.facts import NodeFact, PodFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NO_WORD, PodRow, said_row

SCAN_PORTION = 1000
"""Rows of one portion: some milliseconds of Redis' time."""

TRIM_LIMIT = 20_000
"""Nodes looked at in one trim; four times the largest cluster that Kubernetes supports."""

Context = dict[str, str]
"""Who asked and why, for the journal: a few short words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    """How the ledger is kept."""

    connection: ConnectionSettings
    cluster: str = "default"
    """Hash tag of the keys: one ledger for each Kubernetes cluster."""
    hold_lifetime: timedelta = timedelta(seconds=30)
    """How long a tentative hold stands before the sweep looks; exceeds the slowest bind."""
    journal_length: int = 100_000
    """Entries kept, about; some 15 MB of Redis' memory."""
    call_budget: timedelta = timedelta(seconds=2)
    """Longest wait for one answer: below half of kube-scheduler's `httpTimeout`."""
    settle_after: timedelta = timedelta(seconds=15)
    """Agents' longest period: how long nodes with VMs wait for them after a loss."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """Proof that this replica leads: facts carry the token, and are refused once it is stale."""

    token: str
    build_epoch: str = ""
    """Set while a build is under way: facts go to the keys beside the books."""


@dataclass(slots=True)
class Ledger:
    """The reservations of one Kubernetes cluster. Safe to use from any number of tasks."""

    settings: LedgerSettings
    pipeline: Pipeline
    mirror: Mirror = field(init=False)

    def __post_init__(self) -> None:
        self.mirror = Mirror(self.pipeline)

    @classmethod
    def open(cls, settings: LedgerSettings) -> Ledger:
        """A ledger that begins to connect when it is first asked. `close` it after use."""
        keys = Keys(settings.cluster)
        pipeline = Pipeline(
            connector(settings.connection, slot_key=keys.key("nodes")),
            keys,
            load_scripts(),
            journal_length=settings.journal_length,
            call_budget=settings.call_budget,
        )
        pipeline.start()
        return cls(settings, pipeline)

    async def close(self) -> None:
        """End every connection; calls still waiting end as LedgerUnavailable."""
        await self.pipeline.close()

    # Holds

    async def stamp(self) -> int:
        """The stamp for a call that has just reached us; pass it to each attempt of that call."""
        if self.pipeline.guard is None:
            await self.look()
        return self.pipeline.stamp()

    async def look(self) -> Guard:
        """What books there are: one round trip, whatever their state."""
        await self._run_unguarded("find_lapsed", limit=1)
        guard = self.pipeline.guard
        if guard is None:
            raise AssertionError("a round trip always brings the guard's answer")
        return guard

    async def reserve_pod(
        self,
        uid: PodUid,
        *,
        node: NodeName,
        said: PodRow | None,
        stamp: int,
        to: Literal["held", "binding"] = "held",
        context: Context | None = None,
    ) -> ReserveAnswer:
        """Hold room for a pod on a node; `to="binding"` also begins a bind.

        `said` is what the pod's object says (`said_row`); None: what the ledger knows of it.
        Safe to repeat: the same pod, node and stamp count once.
        """
        word, *rest = await self._change(
            "reserve_pod",
            context,
            stamp=stamp,
            uid=uid,
            node=node,
            said=said.encode() if said else "",
            to=to,
            hold_ms=int(self.settings.hold_lifetime.total_seconds() * 1000),
        )
        outcome = Reserve(word)
        if outcome in (Reserve.HELD, Reserve.BINDING, Reserve.BOUND):
            cpu, mem, rv = rest
            amount = Resources(cpu, mem)
            return ReserveAnswer(outcome=outcome, amount=amount, resource_version=rv.decode())
        text = rest[0].decode() if rest else ""
        return ReserveAnswer(
            outcome=outcome,
            short=text if outcome is Reserve.NO_ROOM else "",
            node=NodeName(text) if outcome in (Reserve.BUSY, Reserve.CONFLICT) else None,
            uid=PodUid(text) if outcome is Reserve.NAME_TAKEN else None,
        )

    async def unreserve_pod(
        self, uid: PodUid, *, node: NodeName, stamp: int, context: Context | None = None
    ) -> Release:
        """Release what is held for a pod on that node, unless it was reserved again since.

        Safe to repeat, and to ask before there was a hold.
        """
        word, *_ = await self._change("unreserve_pod", context, stamp=stamp, uid=uid, node=node)
        return Release(word)

    async def confirm_bind(
        self,
        uid: PodUid,
        *,
        node: NodeName,
        said: PodRow | None = None,
        context: Context | None = None,
    ) -> Confirm:
        """Book that the cluster has the pod bound to the node. A fact: safe to repeat, ever."""
        word, *_ = await self._change(
            "confirm_bind", context, uid=uid, node=node, said=said.encode() if said else ""
        )
        return Confirm(word)

    async def abandon_bind(
        self, uid: PodUid, *, node: NodeName, stamp: int, context: Context | None = None
    ) -> Release:
        """Give up a bind that provably did not happen; `stamp` is the one it began with.

        Safe to repeat. Another call that took the bind over is left alone.
        """
        word, *_ = await self._change("abandon_bind", context, stamp=stamp, uid=uid, node=node)
        return Release(word)

    async def request_permit(
        self,
        name: PodName,
        *,
        asked: Resources,
        factor: Resources,
        last_permit: Resources | None,
        stamp: int,
        context: Context | None = None,
    ) -> PermitAnswer:
        """An agent asks for room for its VM, or tells that the VM has shrunk.

        Safe to repeat with its stamp: the permit is at least the same.
        """
        last = last_permit or NOTHING
        word, *rest = await self._change(
            "request_permit",
            context,
            stamp=stamp,
            name=name,
            cpu=asked.cpu,
            mem=asked.mem,
            factor_cpu=factor.cpu,
            factor_mem=factor.mem,
            last_cpu=last.cpu,
            last_mem=last.mem,
        )
        return PermitAnswer(outcome=Permit(word), amount=Resources(*rest) if rest else NOTHING)

    # Facts

    async def put_pod(
        self,
        fact: PodFact,
        *,
        leader: Leadership | None,
        ignored: bool = False,
        context: Context | None = None,
    ) -> Fact:
        """Book what the cluster says of a pod and its VM.

        Without a leadership it only adds what is missing. Safe to repeat, ever.
        """
        approved = fact.vm.approved if fact.vm and leader and leader.build_epoch else NOTHING
        word, *_ = await self._fact(
            "put_pod",
            leader,
            context,
            uid=fact.uid,
            said=said_row(fact, ignored=ignored).encode(),
            finished=int(fact.finished),
            deleting=int(fact.deleting),
            approved_cpu=approved.cpu,
            approved_mem=approved.mem,
            blob=pack_fact(fact),
        )
        return Fact(word)

    async def delete_pod(
        self, uid: PodUid, *, name: PodName, leader: Leadership, context: Context | None = None
    ) -> Fact:
        """Book that a pod is gone for good. Safe to repeat."""
        word, *_ = await self._fact("delete_pod", leader, context, uid=uid, name=name)
        return Fact(word)

    async def put_node(
        self,
        fact: NodeFact,
        *,
        capacity: Resources,
        config_version: str,
        leader: Leadership | None,
        context: Context | None = None,
    ) -> Fact:
        """Book a node's capacity (allocatable minus `system`); taken even where it ends over it.

        Without a leadership it only adds what is missing. Safe to repeat, ever.
        """
        word, *_ = await self._fact(
            "put_node",
            leader,
            context,
            name=fact.name,
            uid=fact.uid or NO_WORD,
            rv=fact.resource_version or NO_WORD,
            config=config_version or NO_WORD,
            cap_cpu=capacity.cpu,
            cap_mem=capacity.mem,
            blob=_pack({"labels": fact.labels}),
        )
        return Fact(word)

    async def delete_node(
        self, name: NodeName, *, uid: str, leader: Leadership, context: Context | None = None
    ) -> Fact:
        """Book that a node has left; its pods go on counting. Safe to repeat."""
        word, *_ = await self._fact("delete_node", leader, context, name=name, uid=uid or NO_WORD)
        return Fact(word)

    # Reads

    async def read_pod(
        self, *, uid: PodUid | None = None, name: PodName | None = None
    ) -> KnownPod | None:
        """What the ledger knows of a pod, by UID or by name; None: nothing, or it is gone."""
        word, *rest = await self._run("read_pod", uid=uid or "", name=name or "")
        if word != "POD":
            return None
        return KnownPod(
            uid=PodUid(rest[0].decode()), row=PodRow.decode(rest[1].decode()), blob=rest[2]
        )

    async def read_pods(self, uids: Sequence[PodUid]) -> list[KnownPod | None]:
        """What the ledger knows of each pod, in the order asked: one round trip."""
        return await asyncio.gather(*(self.read_pod(uid=uid) for uid in uids))

    async def find_lapsed(self, *, limit: int) -> Lapsed:
        """Tentative holds past their deadline, the longest lapsed first, at most `limit`."""
        _, now, *pairs = await self._run("find_lapsed", limit=limit)
        rows = [
            (PodUid(uid.decode()), PodRow.decode(row.decode()))
            for uid, row in zip(pairs[::2], pairs[1::2], strict=True)
            if row
        ]
        return Lapsed(int(now), rows)

    async def read_all(self, *, blobs: bool, entries: int = 0) -> list[list[Any]]:
        """Every part of the ledger at one moment, flat, in the order of `read_books.lua`."""
        _, *parts = await self._run("read_books", blobs=int(blobs), entries=entries)
        return parts

    async def scan_pods(self) -> dict[PodUid, PodRow]:
        """Every pod's row, read in portions: each as it was at some moment since the call."""
        cursor, rows = "0", dict[PodUid, PodRow]()
        while True:
            _, found, *flat = await self._run("scan_pods", cursor=cursor, count=SCAN_PORTION)
            for uid, row in zip(flat[::2], flat[1::2], strict=True):
                rows[PodUid(uid.decode())] = PodRow.decode(row.decode())
            cursor = found.decode()
            if cursor == "0":
                return rows

    async def note_binding(self, uid: PodUid, *, node: NodeName) -> NodeName:
        """File source only: where the pod is bound now; the first Binding counts."""
        _, bound = await self._run_unguarded("note_binding", uid=uid, node=node)
        return NodeName(bound.decode())

    async def read_bindings(self) -> dict[PodUid, NodeName]:
        """File source only: every Binding that was noted."""
        _, *flat = await self._run_unguarded("read_bindings")
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return {PodUid(uid.decode()): NodeName(node.decode()) for uid, node in pairs}

    # Leading

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

    # Whose it is, and the config

    async def claim(self, cluster_uid: str) -> tuple[Keep, str]:
        """Make the ledger this cluster's; whose it is, where it is another's. Safe to repeat."""
        word, *rest = await self._run_unguarded("claim_ledger", cluster=cluster_uid)
        return Keep(word), rest[0].decode() if rest else cluster_uid

    async def put_config(self, *, version: str, text: bytes) -> Keep:
        """Keep the last good config, for replicas that start beside a bad one."""
        word, *_ = await self._run_unguarded("put_config", version=version, text=text)
        return Keep(word)

    async def read_config(self) -> tuple[str, bytes] | None:
        """The last good config and its version; None: none was ever kept."""
        word, *rest = await self._run_unguarded("read_config")
        return (rest[0].decode(), rest[1]) if word == "CONFIG" else None

    # What the methods share

    async def _change(
        self, script: str, context: Context | None, **arguments: str | int | bytes
    ) -> list[Any]:
        arguments |= {"most": self.settings.journal_length, "context": _pack(context or {})}
        return await self._send(script, arguments, with_epoch=True)

    async def _fact(
        self,
        script: str,
        leader: Leadership | None,
        context: Context | None,
        **arguments: str | int | bytes,
    ) -> list[Any]:
        if leader and leader.build_epoch:
            arguments |= {"epoch": leader.build_epoch, "token": leader.token, "context": b""}
            arguments["most"] = self.settings.journal_length
            word, *rest = await self._send(script, arguments, guarded=False, building=True)
            # Another epoch beside the books: another builder has begun.
            return ["FENCED" if word == "EPOCH" else word, *rest]
        return await self._change(
            script, context, token=leader.token if leader else "", **arguments
        )

    async def _run(self, script: str, **arguments: str | int | bytes) -> list[Any]:
        return await self._send(script, arguments)

    async def _run_unguarded(self, script: str, **arguments: str | int | bytes) -> list[Any]:
        return await self._send(script, arguments, guarded=False)

    async def _send(
        self,
        script: str,
        arguments: dict[str, str | int | bytes],
        *,
        guarded: bool = True,
        building: bool = False,
        with_epoch: bool = False,
    ) -> list[Any]:
        def at_send(epoch: str) -> dict[str, str | int | bytes]:
            return {**arguments, "epoch": epoch} if with_epoch else arguments

        return await self.pipeline.run(
            Call(self.pipeline.script(script), at_send, building=building, guarded=guarded)
        )


def pack_fact(fact: PodFact) -> bytes:
    """What is kept beside a pod's row: the fact itself, for people and for agents' slots."""
    return _pack(msgspec.to_builtins(fact))


def unpack_fact(known: KnownPod | None) -> PodFact | None:
    """The fact that was kept beside the row; None where there was none, or none of ours."""
    if known is None or not known.blob:
        return None
    try:
        return msgspec.convert(msgpack.unpackb(known.blob), PodFact)
    except (msgspec.ValidationError, ValueError):
        return None  # written by another release


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed
