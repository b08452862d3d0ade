"""The ledger as a value: every operation of DESIGN.md's table, written to be read.

A node's sums are never kept: they are added up from its pods each time they are looked at, which
is what makes this an independent check of scripts that keep them. Time is passed in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from autoscale_enforcer.ledger.outcomes import (
    Confirm,
    Fact,
    Lead,
    Permit,
    PermitAnswer,
    Recount,
    Release,
    Reserve,
    ReserveAnswer,
)
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import NOTHING, OVERCOMMIT_ONE, Resources
from autoscale_enforcer.model.rows import NO_WORD, NodeRow, PodRow, Stage, newer
from tests.reference.breaches import breaches
from tests.reference.node import UNDESCRIBED, Node, node_row
from tests.reference.rows_alone import adds, held_answer, newer_of, no_permit, standing, told
from tests.reference.taking_in import after_fact, merged, with_amount

GONE_KEPT_MS = 600_000
"""How long a deletion is remembered at least: nothing said before it is still on its way then."""

ADDITIVE = ""
"""The token of a caller that does not lead: it only adds what is missing."""


@dataclass(slots=True)
class Books:
    """One ledger. Compare, copy and keep it as you like: all rows in it are values."""

    epoch: str
    token: str = ""
    """Fencing token of who leads; facts of another are refused."""
    is_suspect: bool = False
    settle_ms: int = 0
    """Until then a node waits for its VMs' agents."""
    nodes: dict[NodeName, Node] = field(default_factory=dict)
    pods: dict[PodUid, PodRow] = field(default_factory=dict)
    names: dict[PodName, PodUid] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    drifted: NodeName | None = None
    """The node whose row says other than its pods, here always added up anew."""
    frozen: frozenset[str] = frozenset()
    """Nodes on which an operator has stopped grants, or `*`; kept beside the books."""

    def copy(self) -> Books:
        """Books of their own, equal to these."""
        return replace(
            self,
            nodes=self.nodes.copy(),
            pods=self.pods.copy(),
            names=self.names.copy(),
            blobs=self.blobs.copy(),
            gone=self.gone.copy(),
        )

    # What a node has

    def pods_on(self, node: str) -> Iterator[tuple[PodUid, PodRow]]:
        """The pods that hold something there."""
        return ((uid, row) for uid, row in self.pods.items() if row.holds and row.node == node)

    def reserved(self, node: str, *, without: tuple[PodUid | None, ...] = ()) -> Resources:
        """The sum of charges there, but for these pods and those of ignored namespaces."""
        charges = (
            row.charge for uid, row in self.pods_on(node) if uid not in without and not row.ignored
        )
        return sum(charges, NOTHING)

    def node_row(self, name: NodeName) -> NodeRow:
        """The row that the ledger must have for this node, whatever its version."""
        return node_row(self.nodes[name], [row for _, row in self.pods_on(name)], self.epoch)

    def is_unsettled(self, node: NodeName, *, now: int) -> bool:
        """What was told before a loss may be missing there: nothing may grow or be held anew."""
        row = self.node_row(node)
        return self.is_suspect or (row.heard < row.vms and now // 1000 < self.settle_ms)

    def is_frozen(self, node: str) -> bool:
        """Nothing may grow or be held anew there before an operator allows it."""
        return bool(self.frozen & {"*", node})

    # Holds

    def reserve(
        self,
        uid: PodUid,
        *,
        node: NodeName,
        said: PodRow | None,
        to: Literal["held", "binding"],
        stamp: int,
        hold_ms: int,
        now: int,
    ) -> ReserveAnswer:
        """Hold room for the pod on the node, or say why not; `to="binding"` also begins a bind."""
        if uid in self.gone:
            return ReserveAnswer(outcome=Reserve.GONE)
        row = self.pods.get(uid)
        answer = row and standing(row, node=node, to=to, stamp=stamp)
        if answer:
            return answer
        known = newer_of(row, said)
        if known is None:
            return ReserveAnswer(outcome=Reserve.UNKNOWN)
        wanted = with_amount(known, known.amount)
        rival = self._rival(uid, wanted)
        refusal = self._unfit(wanted, rival) or self._no_room(uid, wanted, node, rival, now=now)
        if refusal:
            return refusal
        self._drop(rival, now)
        held = replace(
            wanted,
            node=node,
            stage=to,
            stamp=stamp,
            deadline=now // 1000 + hold_ms,
            heard=self.epoch if wanted.scaled else NO_WORD,
        )
        self._book(uid, held)
        return held_answer(Reserve.HELD if to == "held" else Reserve.BINDING, held)

    def unreserve(self, uid: PodUid, *, node: NodeName, stamp: int) -> Release:
        """Release what is held there, unless it was reserved again since."""
        return self._release(uid, Stage.HELD, node, stamp)

    def abandon(self, uid: PodUid, *, node: NodeName, stamp: int) -> Release:
        """Give up a bind that did not happen, unless another call took it over."""
        return self._release(uid, Stage.BINDING, node, stamp)

    def confirm(self, uid: PodUid, *, node: NodeName, said: PodRow | None, now: int) -> Confirm:
        """The cluster has the pod bound there: a fact, from any stage."""
        if uid in self.gone:
            return Confirm.GONE
        row = self.pods.get(uid)
        if row is None or not row.holds:
            known = newer_of(row, said)
            if known is None:
                return Confirm.UNKNOWN
            row = with_amount(known, known.amount)
        rival = self._rival(uid, row)
        if self._is_newer(rival, row):
            return Confirm.GONE
        self._drop(rival, now)
        self._book(uid, replace(row, node=node, stage=Stage.BOUND, deadline=0))
        return Confirm.BOUND

    def lapsed(self, *, limit: int, now: int) -> list[tuple[PodUid, PodRow]]:
        """Tentative holds past their deadline, for the sweep to settle by live reads."""
        past = [(r.deadline, u) for u, r in self.pods.items() if 0 < r.deadline <= now // 1000]
        return [(uid, self.pods[uid]) for _, uid in sorted(past)[:limit]]

    # Permits

    def request(
        self,
        name: PodName,
        *,
        asked: Resources,
        factor: Resources,
        last: Resources,
        stamp: int,
        now: int,
    ) -> PermitAnswer:
        """An agent asks for room for its VM, or tells that the VM has shrunk."""
        uid = self.names.get(name)
        if uid is None:
            return PermitAnswer(outcome=Permit.UNKNOWN)
        row = self.pods[uid]
        refusal = no_permit(row, stamp)
        if refusal:
            return PermitAnswer(outcome=refusal, amount=told(refusal, row))
        start = row.amount
        if row.heard != self.epoch:
            # The agent's word counts, where it gives one: ours may be older.
            most, use = Resources(row.max_cpu, row.max_mem), Resources(row.use_cpu, row.use_mem)
            word = last.at_most(most).at_least(use)
            start = Resources(
                word.cpu if last.cpu else start.cpu, word.mem if last.mem else start.mem
            )
        start = start.at_most(asked)
        self.pods[uid] = replace(
            with_amount(row, start, asked),
            heard=self.epoch,
            factor_cpu=factor.cpu,
            factor_mem=factor.mem,
            stamp=stamp,
        )
        permit = start + self._growth(uid, now=now).at_most(asked - start)
        self.pods[uid] = with_amount(self.pods[uid], permit, asked)
        return PermitAnswer(outcome=Permit.PERMIT, amount=permit)

    # Facts

    def put_pod(
        self,
        uid: PodUid,
        *,
        said: PodRow,
        token: str,
        finished: bool = False,
        deleting: bool = False,
        approved: Resources = NOTHING,
        blob: bytes = b"",
        now: int,
    ) -> Fact:
        """Book what the cluster says of a pod and its VM."""
        if self._is_fenced(token):
            return Fact.FENCED
        if uid in self.gone:
            return Fact.GONE
        row = self.pods.get(uid)
        if token == ADDITIVE and row and not adds(said, row, finished=finished):
            if not newer(row.rv, said.rv):
                self._keep(uid, blob)
            return Fact.KNOWN
        new = merged(row, said)
        rival = self._rival(uid, said)
        if new is None or self._is_newer(rival, new):
            return Fact.OLD
        self._drop(rival, now)
        if finished:
            self._drop(uid, now)
            self._drop_deserted()
            return Fact.RELEASED
        self._keep(uid, blob)
        return self._take_in(uid, after_fact(new, row, approved), deleting=deleting)

    def delete_pod(self, uid: PodUid, *, token: str, now: int) -> Fact:
        """The pod is gone for good."""
        if self._is_fenced(token):
            return Fact.FENCED
        was_known = uid in self.pods
        self._drop(uid, now)
        self._drop_deserted()
        return Fact.DELETED if was_known else Fact.NOTHING

    def put_node(self, name: NodeName, node: Node, *, token: str, blob: bytes = b"") -> Fact:
        """Book a node's capacity, even where the node ends over it."""
        if self._is_fenced(token):
            return Fact.FENCED
        if node.uid in self.gone:
            return Fact.GONE
        known = self.nodes.get(name, UNDESCRIBED)
        if token == ADDITIVE and not known.absent:
            return Fact.KNOWN
        if newer(known.rv, node.rv) or known.is_overtaking(node.config):
            return Fact.OLD
        self.blobs[name] = blob
        self.nodes[name] = node
        return Fact.KNOWN if known == node else Fact.BOOKED

    def delete_node(self, name: NodeName, *, uid: str, token: str, now: int) -> Fact:
        """The node has left; its pods go on counting."""
        if self._is_fenced(token):
            return Fact.FENCED
        if uid != NO_WORD:
            self.gone[uid] = now // 1000
        node = self.nodes.get(name)
        if node is None or node.absent or node.uid != uid:
            return Fact.NOTHING
        self.nodes[name] = replace(node, uid=NO_WORD, absent=True, capacity=NOTHING)
        self._drop_deserted()
        return Fact.ABSENT if name in self.nodes else Fact.DELETED

    def release_leftover(self, uid: PodUid, *, now: int) -> Release:
        """A live read has proved that the pod is finished or gone."""
        if uid not in self.pods:
            return Release.NOTHING
        self._drop(uid, now)
        self._drop_deserted()
        return Release.RELEASED

    # Redis comes and goes

    def begin_epoch(self, epoch: str) -> None:
        """Another life of the same books: what was acknowledged last may be missing."""
        self.epoch, self.is_suspect = epoch, True

    def recount(self, name: NodeName, *, token: str, is_past: bool) -> Recount:
        """Make the node's sums those of its pods, unless it has changed since they were read."""
        if token != self.token:
            return Recount.FENCED
        if is_past or name not in self.nodes:
            return Recount.CHANGED
        if name != self.drifted:
            return Recount.RIGHT
        self.drifted = None
        return Recount.RECOUNTED

    def rename_epoch(self, epoch: str) -> None:
        """The same life of the books under another name: nothing is missing."""
        for uid, row in self.pods.items():
            if row.heard == self.epoch:
                self.pods[uid] = replace(row, heard=epoch)
        self.epoch = epoch

    def settle(self, *, token: str, settle_after_ms: int, now: int) -> Lead:
        """The suspect books have been compared with the cluster."""
        if token != self.token:
            return Lead.FENCED
        if not self.is_suspect:
            return Lead.NOTHING
        self.is_suspect, self.settle_ms = False, now // 1000 + settle_after_ms
        return Lead.SETTLED

    def forget_gone(self, now: int) -> None:
        """Deletions that nothing on its way to us can contradict any more."""
        self.gone = {uid: at for uid, at in self.gone.items() if at > now // 1000 - GONE_KEPT_MS}

    # What must always hold

    def breaches(self) -> list[str]:
        """What these books alone show to be wrong."""
        return list(
            breaches({n: node.absent for n, node in self.nodes.items()}, self.pods, self.names)
        )

    # What the operations share

    def _is_fenced(self, token: str) -> bool:
        return token not in (ADDITIVE, self.token)

    def _rival(self, uid: PodUid, row: PodRow) -> PodUid | None:
        """Another pod that is known under the same name."""
        holder = self.names.get(PodName(row.name))
        return holder if holder != uid else None

    def _is_newer(self, rival: PodUid | None, row: PodRow) -> bool:
        return rival is not None and newer(self.pods[rival].rv, row.rv)

    def _book(self, uid: PodUid, row: PodRow) -> None:
        self.pods[uid] = row
        self.names[PodName(row.name)] = uid
        if row.holds:
            self.nodes.setdefault(NodeName(row.node), UNDESCRIBED)
        self._drop_deserted()

    def _keep(self, uid: PodUid, blob: bytes) -> None:
        """This beside the row, and nothing else."""
        self.blobs.pop(uid, None)
        if blob:
            self.blobs[uid] = blob

    def _drop(self, uid: PodUid | None, now: int) -> None:
        """Out of the books for good, and remembered as gone."""
        if uid is None:
            return
        row = self.pods.pop(uid, None)
        if row and self.names.get(PodName(row.name)) == uid:
            del self.names[PodName(row.name)]
        self.blobs.pop(uid, None)
        self.gone[uid] = now // 1000
        self.forget_gone(now)

    def _drop_deserted(self) -> None:
        """An absent node goes with its last pod."""
        for name, node in list(self.nodes.items()):
            if node.absent and not any(self.pods_on(name)):
                del self.nodes[name]
                self.blobs.pop(name, None)

    def _take_in(self, uid: PodUid, new: PodRow, *, deleting: bool) -> Fact:
        """A pod's row after a fact: bound where the fact says so; without a node, no hold goes."""
        row = self.pods.get(uid)
        is_bound = new.node != NO_WORD
        is_released = deleting and row is not None and row.is_tentative and not is_bound
        if row and row.holds and not is_bound and not is_released:
            return Fact.KNOWN
        stage = Stage.BOUND if is_bound else Stage.PENDING
        self._book(uid, replace(new, stage=stage, deadline=0))
        if is_released:
            return Fact.RELEASED
        return Fact.KNOWN if self.pods[uid] == row else Fact.BOOKED

    def _release(self, uid: PodUid, stage: Stage, node: NodeName, stamp: int) -> Release:
        row = self.pods.get(uid)
        if row is None or (row.stage, row.node) != (stage, node):
            return Release.NOTHING
        if row.stamp > stamp:
            return Release.LATE
        self._book(uid, replace(row, stage=Stage.PENDING, node=NO_WORD, deadline=0, stamp=stamp))
        return Release.RELEASED

    def _unfit(self, wanted: PodRow, rival: PodUid | None) -> ReserveAnswer | None:
        """Why this pod may not be held anywhere; None where it may."""
        if wanted.broken:
            return ReserveAnswer(outcome=Reserve.UNREADABLE)
        if wanted.ignored:
            return ReserveAnswer(outcome=Reserve.IGNORED)
        if self._is_newer(rival, wanted):
            return ReserveAnswer(outcome=Reserve.GONE)
        if rival and self.pods[rival].stage in (Stage.BINDING, Stage.BOUND):
            return ReserveAnswer(outcome=Reserve.NAME_TAKEN, uid=rival)
        return None

    def _no_room(
        self, uid: PodUid, wanted: PodRow, node: NodeName, rival: PodUid | None, *, now: int
    ) -> ReserveAnswer | None:
        """Why it may not be held on this node, as if `rival` were not there; None where it may."""
        if node not in self.nodes or self.nodes[node].absent:
            return ReserveAnswer(outcome=Reserve.NO_NODE)
        row = self.pods.get(uid)
        before = row.charge if row and row.holds and row.node == node else NOTHING
        left = self.nodes[node].capacity - self.reserved(node, without=(uid, rival))
        more = {
            "cpu": wanted.charge_cpu > before.cpu,
            "mem": wanted.charge_mem > before.mem,
        }
        if any(more.values()) and self.is_frozen(node):
            return ReserveAnswer(outcome=Reserve.FROZEN)
        if any(more.values()) and self.is_unsettled(node, now=now):
            return ReserveAnswer(outcome=Reserve.UNSETTLED)
        fits = {"cpu": wanted.charge_cpu <= left.cpu, "mem": wanted.charge_mem <= left.mem}
        short = "_".join(kind for kind in ("cpu", "mem") if more[kind] and not fits[kind])
        return ReserveAnswer(outcome=Reserve.NO_ROOM, short=short) if short else None

    def _growth(self, uid: PodUid, *, now: int) -> Resources:
        """By how much the VM may grow from what it holds: whole steps of what its node has left."""
        row = self.pods[uid]
        node = NodeName(row.node)
        if row.moving or self.is_frozen(node) or self.is_unsettled(node, now=now):
            return NOTHING
        others = self.reserved(node, without=(uid,))
        left = (self.nodes[node].capacity - others - row.charge).at_least(NOTHING)
        return Resources(
            left.cpu * row.over_cpu // OVERCOMMIT_ONE // row.factor_cpu * row.factor_cpu,
            left.mem * row.over_mem // OVERCOMMIT_ONE // row.factor_mem * row.factor_mem,
        )
