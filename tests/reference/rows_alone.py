"""What one pod's row decides by itself, without the node that it is on."""

from __future__ import annotations

from autoscale_enforcer.ledger.outcomes import Permit, Reserve, ReserveAnswer
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NO_WORD, PodRow, Stage
from tests.reference.taking_in import merged


def standing(row: PodRow, *, node: NodeName, to: str, stamp: int) -> ReserveAnswer | None:
    """What the pod's stage alone decides of a reserve; None where room has to be judged."""
    is_here = row.node == node
    match row.stage:
        case Stage.BOUND if is_here:
            return held_answer(Reserve.BOUND, row)
        case Stage.BOUND:
            return ReserveAnswer(outcome=Reserve.CONFLICT, node=NodeName(row.node))
        case Stage.BINDING if not is_here:
            return ReserveAnswer(outcome=Reserve.BUSY, node=NodeName(row.node))
        case Stage.BINDING if to == "held":
            return held_answer(Reserve.BINDING, row)
    # A released hold keeps its release's stamp: what was sent with that stamp has had its time.
    oldest = row.stamp + 1 if row.stage == Stage.PENDING else row.stamp
    return ReserveAnswer(outcome=Reserve.LATE) if stamp < oldest else None


def held_answer(outcome: Reserve, row: PodRow) -> ReserveAnswer:
    return ReserveAnswer(outcome=outcome, amount=row.amount, resource_version=row.rv)


def newer_of(row: PodRow | None, said: PodRow | None) -> PodRow | None:
    """What is known of a pod, by its row and what a caller says of it; None where nothing is."""
    return (merged(row, said) or row) if said else row


def adds(said: PodRow, row: PodRow, *, finished: bool) -> bool:
    """What a caller that does not lead may tell of a known pod: that it is bound."""
    return said.node != NO_WORD and not finished and row.stage != Stage.BOUND


def no_permit(row: PodRow, stamp: int) -> Permit | None:
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


def told(outcome: Permit, row: PodRow) -> Resources:
    return row.amount if outcome is Permit.FIXED else NOTHING
