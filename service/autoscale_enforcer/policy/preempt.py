"""Which of the nodes that a scheduler would clear is worth clearing.

Pure: no I/O, no clock. The scheduler chose the victims by what the pods request; here they count
with what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable

from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NodeRow, PodRow
from autoscale_enforcer.policy.fit import short_of


def fits_without(
    node: NodeRow, leaving: Iterable[PodRow], *, charge: Resources, own: Resources = NOTHING
) -> bool:
    """Whether a pod of this charge fits once these pods have left the node.

    `own` is what the pod itself holds there already.
    """
    taken = node.reserved + node.ignored - own
    for pod in leaving:
        taken -= pod.charge
    return short_of(capacity=node.capacity, taken=taken, charge=charge, had=own) is None
