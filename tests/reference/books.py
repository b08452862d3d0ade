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
    Release,
    Reserve,
    ReserveAnswer,
)
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import NOTHING, OVERCOMMIT_ONE, Resources
from autoscale_enforcer.model.rows import NO_WORD, NodeRow, PodRow, Stage, newer
from tests.reference.taking_in import after_fact, merged, with_amount

GONE_KEPT_MS = 600_000
"""How long a deletion is remembered at least: nothing said before it is still on its way then."""

ADDITIVE = ""
"""The token of a caller that does not lead: it only adds what is missing."""


@dataclass(frozen=True, slots=True)
class Node:
    """What is kept of a node, its sums apart. Frozen, like every row in these books."""

    uid: str = NO_WORD
    rv: str = NO_WORD
    config: str = NO_WORD
    capacity: Resources = NOTHING
    absent: bool = False


UNDESCRIBED = Node(absent=True)
"""A node that pods are on and nobody has described."""


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
        node = self.nodes[name]
        pods = [row for _, row in self.pods_on(name)]
        counted = [row for row in pods if not row.ignored]
        scaled = [row for row in pods if row.scaled and row.stage == Stage.BOUND]
        sums = {
            "cap": node.capacity,
            "reserved": self.reserved(name),
            "committed": sum((row.amount for row in counted), NOTHING),
            "ignored": sum((row.charge for row in pods if row.ignored), NOTHING),
            "migrating": sum((row.charge for row in pods if row.moving), NOTHING),
            "pressure": sum(((row.asked - row.amount).at_least(NOTHING) for row in pods), NOTHING),
        }
        return NodeRow(
            uid=node.uid,
            rv=node.rv,
            config=node.config,
            epoch=self.epoch,
            absent=int(node.absent),
            pods=len(pods),
            vms=len(scaled),
            heard=sum(row.heard == self.epoch for row in scaled),
            **{f"{name}_cpu": amount.cpu for name, amount in sums.items()},
            **{f"{name}_mem": amount.mem for name, amount in sums.items()},
        )

    def is_unsettled(self, node: NodeName, *, now: int) -> bool:
        """What was told before a loss may be missing there: nothing may grow or be held anew."""
        row = self.node_row(node)
        return self.is_suspect or (row.heard < row.vms and now // 1000 < self.settle_ms)

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
        standing = row and _standing(row, node=node, to=to, stamp=stamp)
        if standing:
            return standing
        known = _newer_of(row, said)
        if known is None:
            return ReserveAnswer(outcome=Reserve.UNKNOWN)
        wanted = with_amount(known, known.amount)
        rival = self._rival(uid, wanted)
        refusal = self._unfit(wanted, rival) or self._no_room(uid, wanted, node, rival, now=now)
        if refusal:
            return refusal
        if rival:
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
        return _held(Reserve.HELD if to == "held" else Reserve.BINDING, held)

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
            known = _newer_of(row, said)
            if known is None:
                return Confirm.UNKNOWN
            row = with_amount(known, known.amount)
        rival = self._rival(uid, row)
        if rival and newer(self.pods[rival].rv, row.rv):
            return Confirm.GONE
        if rival:
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
        refusal = _no_permit(row, stamp)
        if refusal:
            return PermitAnswer(outcome=refusal, amount=_told(refusal, row))
        believed = last if row.heard != self.epoch else NOTHING
        believed = believed.at_most(asked).at_most(Resources(row.max_cpu, row.max_mem))
        start = row.amount.at_least(believed).at_most(asked)
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
        if token == ADDITIVE and row and not _adds(said, row, finished=finished):
            if not newer(row.rv, said.rv):
                self.blobs[uid] = blob
            return Fact.KNOWN
        new = merged(row, said)
        rival = self._rival(uid, said)
        if new is None or (rival and newer(self.pods[rival].rv, new.rv)):
            return Fact.OLD
        if rival:
            self._drop(rival, now)
        if finished:
            self._drop(uid, now)
            self._drop_deserted()
            return Fact.RELEASED
        self.blobs[uid] = blob
        stage = Stage.PENDING if new.node == NO_WORD else Stage.BOUND
        is_released = row is not None and row.is_tentative and stage == Stage.PENDING and deleting
        if row and row.holds and stage == Stage.PENDING and not is_released:
            return Fact.KNOWN
        booked = replace(after_fact(new, row, approved), stage=stage, deadline=0)
        self._book(uid, booked)
        if is_released:
            return Fact.RELEASED
        return Fact.KNOWN if booked == row else Fact.BOOKED

    def delete_pod(self, uid: PodUid, *, token: str, now: int) -> Fact:
        """The pod is gone for good."""
        if self._is_fenced(token):
            return Fact.FENCED
        was_known = uid in self.pods
        self._drop(uid, now)
        self._drop_deserted()
        return Fact.DELETED if was_known else Fact.NOTHING

    def put_node(
        self, name: NodeName, node: Node, *, token: str, blob: bytes = b"", now: int
    ) -> Fact:
        """Book a node's capacity, even where the node ends over it."""
        if self._is_fenced(token):
            return Fact.FENCED
        if node.uid in self.gone:
            return Fact.GONE
        known = self.nodes.get(name, UNDESCRIBED)
        if token == ADDITIVE and not known.absent:
            return Fact.KNOWN
        if newer(known.rv, node.rv) or newer(known.config, node.config):
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

    # Redis comes and goes

    def begin_epoch(self, epoch: str) -> None:
        """Another life of the same books: what was acknowledged last may be missing."""
        self.epoch, self.is_suspect = epoch, True

    def settle(self, *, token: str, settle_after_ms: int, now: int) -> Lead:
        """The suspect books have been compared with the cluster."""
        if token != self.token:
            return Lead.FENCED
        if not self.is_suspect:
            return Lead.NOTHING
        self.is_suspect, self.settle_ms = False, now // 1000 + settle_after_ms
        return Lead.SETTLED

    # What must always hold

    def breaches(self) -> list[str]:
        """What these books alone show to be wrong; numbered as DESIGN.md's invariants."""
        return [
            *(f"1 {uid}: {why}" for uid, row in self.pods.items() for why in _row_breaches(row)),
            *(
                f"2 {uid} is on {row.node}, which has no row"
                for uid, row in self.pods.items()
                if row.holds and row.node not in self.nodes
            ),
            *(
                f"2 {uid} is not what {row.name} points to"
                for uid, row in self.pods.items()
                if self.names.get(PodName(row.name)) != uid
            ),
            *(
                f"2 {name} points to nothing"
                for name, uid in self.names.items()
                if uid not in self.pods
            ),
            *(
                f"2 {name} is deserted and still there"
                for name, node in self.nodes.items()
                if node.absent and not any(self.pods_on(name))
            ),
        ]

    # What the operations share

    def _is_fenced(self, token: str) -> bool:
        return token not in (ADDITIVE, self.token)

    def _rival(self, uid: PodUid, row: PodRow) -> PodUid | None:
        """Another pod that is known under the same name."""
        holder = self.names.get(PodName(row.name))
        return holder if holder != uid else None

    def _book(self, uid: PodUid, row: PodRow) -> None:
        self.pods[uid] = row
        self.names[PodName(row.name)] = uid
        if row.holds:
            self.nodes.setdefault(NodeName(row.node), UNDESCRIBED)
        self._drop_deserted()

    def _drop(self, uid: PodUid, now: int) -> None:
        """Out of the books for good, and remembered as gone."""
        row = self.pods.pop(uid, None)
        if row and self.names.get(PodName(row.name)) == uid:
            del self.names[PodName(row.name)]
        self.blobs.pop(uid, None)
        self.gone[uid] = now // 1000
        for old in [uid for uid, at in self.gone.items() if at <= now // 1000 - GONE_KEPT_MS]:
            del self.gone[old]

    def _drop_deserted(self) -> None:
        """An absent node goes with its last pod."""
        for name, node in list(self.nodes.items()):
            if node.absent and not any(self.pods_on(name)):
                del self.nodes[name]
                self.blobs.pop(name, None)

    def _release(self, uid: PodUid, stage: Stage, node: NodeName, stamp: int) -> Release:
        row = self.pods.get(uid)
        if row is None or (row.stage, row.node) != (stage, node) or row.stamp > stamp:
            return Release.NOTHING
        self._book(uid, replace(row, stage=Stage.PENDING, node=NO_WORD, deadline=0, stamp=stamp))
        return Release.RELEASED

    def _unfit(self, wanted: PodRow, rival: PodUid | None) -> ReserveAnswer | None:
        """Why this pod may not be held anywhere; None where it may."""
        if wanted.broken:
            return ReserveAnswer(outcome=Reserve.UNREADABLE)
        if wanted.ignored:
            return ReserveAnswer(outcome=Reserve.IGNORED)
        if rival and newer(self.pods[rival].rv, wanted.rv):
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
        if any(more.values()) and self.is_unsettled(node, now=now):
            return ReserveAnswer(outcome=Reserve.UNSETTLED)
        fits = {"cpu": wanted.charge_cpu <= left.cpu, "mem": wanted.charge_mem <= left.mem}
        short = "_".join(kind for kind in ("cpu", "mem") if more[kind] and not fits[kind])
        return ReserveAnswer(outcome=Reserve.NO_ROOM, short=short) if short else None

    def _growth(self, uid: PodUid, *, now: int) -> Resources:
        """By how much the VM may grow from what it holds: whole steps of what its node has left."""
        row = self.pods[uid]
        node = NodeName(row.node)
        if row.moving or self.is_unsettled(node, now=now):
            return NOTHING
        others = self.reserved(node, without=(uid,))
        left = (self.nodes[node].capacity - others - row.charge).at_least(NOTHING)
        return Resources(
            left.cpu * row.over_cpu // OVERCOMMIT_ONE // row.factor_cpu * row.factor_cpu,
            left.mem * row.over_mem // OVERCOMMIT_ONE // row.factor_mem * row.factor_mem,
        )


def _standing(row: PodRow, *, node: NodeName, to: str, stamp: int) -> ReserveAnswer | None:
    """What the pod's stage alone decides of a reserve; None where room has to be judged."""
    is_here = row.node == node
    match row.stage:
        case Stage.BOUND if is_here:
            return _held(Reserve.BOUND, row)
        case Stage.BOUND:
            return ReserveAnswer(outcome=Reserve.CONFLICT, node=NodeName(row.node))
        case Stage.BINDING if not is_here:
            return ReserveAnswer(outcome=Reserve.BUSY, node=NodeName(row.node))
        case Stage.BINDING if to == "held":
            return _held(Reserve.BINDING, row)
    # A released hold keeps its release's stamp: what was sent with that very stamp has had its time.
    oldest = row.stamp + 1 if row.stage == Stage.PENDING else row.stamp
    return ReserveAnswer(outcome=Reserve.LATE) if stamp < oldest else None


def _held(outcome: Reserve, row: PodRow) -> ReserveAnswer:
    return ReserveAnswer(outcome=outcome, amount=row.amount, resource_version=row.rv)


def _newer_of(row: PodRow | None, said: PodRow | None) -> PodRow | None:
    """What is known of a pod, by its row and what a caller says of it; None where nothing is."""
    return (merged(row, said) or row) if said else row


def _adds(said: PodRow, row: PodRow, *, finished: bool) -> bool:
    """What a caller that does not lead may tell of a known pod: that it is bound."""
    return said.node != NO_WORD and not finished and row.stage != Stage.BOUND


def _no_permit(row: PodRow, stamp: int) -> Permit | None:
    """Why its agent gets no new permit; None where it may."""
    if not row.vm:
        return Permit.NOT_VM
    if row.stage != Stage.BOUND:
        return Permit.UNBOUND
    if row.broken:
        return Permit.UNREADABLE
    if not row.scaled:
        return Permit.FIXED
    return Permit.LATE if stamp < row.stamp else None


def _told(outcome: Permit, row: PodRow) -> Resources:
    return row.amount if outcome is Permit.FIXED else NOTHING


def _row_breaches(row: PodRow) -> Iterator[str]:
    if row.is_tentative != (row.deadline > 0):
        yield f"{row.stage} with deadline {row.deadline}"
    if row.holds != (row.node != NO_WORD):
        yield f"{row.stage} on {row.node}"
    if row.charge != row.overcommit.charge(row.amount):
        yield f"pays {row.charge} for {row.amount}"
