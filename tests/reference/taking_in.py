"""What becomes of a pod's row when its objects say something: the newer version, object by object.

Rows are values here: nothing changes one, everything gives a new one.
"""

from __future__ import annotations

from dataclasses import replace

from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NO_WORD, PodRow, Stage, newer

POD_PART = ("rv", "ignored", "moving")
"""What the pod's object says, its node apart."""

VM_PART = (
    *("vm", "broken", "vm_rv", "scaled", "cpu", "mem", "use_cpu", "use_mem"),
    *("max_cpu", "max_mem", "over_cpu", "over_mem"),
)
"""What the VM says, in the pod's annotations or in an object of its own."""


def merged(row: PodRow | None, said: PodRow) -> PodRow | None:
    """The row with what is new in `said`; None where all of that is older than the row.

    An equal version is taken in, for config may have changed. `node` is where the pod's object
    says that it is bound, as far as the newer version knows.
    """
    if row is None:
        return replace(said)
    pod_is_new, vm_is_new = not newer(row.rv, said.rv), _vm_is_new(row, said)
    if not (pod_is_new or vm_is_new):
        return None
    node = said.node if pod_is_new else row.node if row.stage == Stage.BOUND else NO_WORD
    taken = (POD_PART if pod_is_new else ()) + (VM_PART if vm_is_new else ())
    if said.broken and row.max_cpu:
        taken = (*POD_PART, "broken")  # nothing is said of a VM that could be read: it stands
    return replace(row, node=node, **{name: getattr(said, name) for name in taken})


def _vm_is_new(row: PodRow, said: PodRow) -> bool:
    if NO_WORD not in (row.vm_rv, said.vm_rv):
        return not newer(row.vm_rv, said.vm_rv)
    if row.broken and said.vm_rv != NO_WORD:
        return True  # the object that could not be read when the row was written
    return not newer(row.rv, said.rv)  # it is, or was, on the pod itself


def with_amount(row: PodRow, amount: Resources, asked: Resources | None = None) -> PodRow:
    """The row holding `amount`, and the charge for it; `asked` where more was asked for."""
    asked = amount if asked is None else asked
    charge = row.overcommit.charge(amount)
    return replace(
        row,
        cpu=amount.cpu,
        mem=amount.mem,
        charge_cpu=charge.cpu,
        charge_mem=charge.mem,
        asked_cpu=asked.cpu,
        asked_mem=asked.mem,
    )


def after_fact(new: PodRow, row: PodRow | None, approved: Resources = NOTHING) -> PodRow:
    """`new`, the merged row, with the amount that it holds from now on.

    A VM without autoscaling follows its use. A permit stands; only a use that has risen since the
    last fact, and is above it, raises it. `approved` counts for a VM that nothing is known of.
    """
    if new.scaled and row and row.holds and row.scaled:
        amount = Resources(
            new.use_cpu if new.use_cpu > max(row.use_cpu, row.cpu) else row.cpu,
            new.use_mem if new.use_mem > max(row.use_mem, row.mem) else row.mem,
        )
        return with_amount(new, amount, row.asked)
    if new.scaled and row is None:
        return with_amount(new, new.amount.at_least(approved))
    return with_amount(new, new.amount)
