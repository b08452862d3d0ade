"""Whether a pod fits on a node, and the words for why not.

The comparison of filter, prioritize and preempt; `lua/lib/short_of.lua` is its twin in reserve.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NodeRow, Room


class Reason(StrEnum):
    """Why a node is not for a pod, without numbers or names.

    kube-scheduler groups nodes by the literal text in the message that a person sees on the pod.
    """

    CPU = "Insufficient cpu left by reservations"
    MEMORY = "Insufficient memory left by reservations"
    BOTH = "Insufficient cpu and memory left by reservations"
    TOO_SMALL = "Node is too small for the pod"
    UNKNOWN_NODE = "Node is not known to the reservation ledger"
    FROZEN = "Grants are frozen by an operator"
    UNSETTLED = "Node waits for its VMs to report after a loss of the ledger"
    ELSEWHERE = "Pod is bound or being bound to another node"
    UNREADABLE = "Pod cannot be understood"
    GONE = "Pod is finished or deleted"
    NAME_TAKEN = "Another pod of that name is bound"
    LATE = "Something newer has changed what the pod holds"


SHORT_OF = {"cpu": Reason.CPU, "mem": Reason.MEMORY, "cpu_mem": Reason.BOTH}
"""By what the reserve script calls them."""


def short_of(
    *, capacity: Resources, taken: Resources, charge: Resources, had: Resources = NOTHING
) -> Reason | None:
    """What too little is left of on a node; None where the pod fits.

    `taken` is what others hold there, `had` what the pod itself holds there already: a resource of
    which nothing more is asked is not judged, so that a pod never stands in its own way.
    """
    cpu = charge.cpu > had.cpu and taken.cpu + charge.cpu > capacity.cpu
    mem = charge.mem > had.mem and taken.mem + charge.mem > capacity.mem
    if cpu and mem:
        return Reason.BOTH
    return Reason.CPU if cpu else Reason.MEMORY if mem else None


def could_ever_fit(node: NodeRow, charge: Resources) -> bool:
    """Whether the pod would fit if everything else left the node."""
    return short_of(capacity=node.capacity, taken=NOTHING, charge=charge) is None


def verdicts(rooms: Mapping[NodeName, Room], charge: Resources) -> dict[NodeName, Reason | None]:
    """Why a pod that holds nothing may not go to each of these nodes; None: it may.

    `could_ever_fit` and `short_of` for thousands of nodes at once.
    """
    found: dict[NodeName, Reason | None] = {}
    cpu, mem = charge.cpu or _NOT_ASKED, charge.mem or _NOT_ASKED
    for name, (cpu_left, mem_left, cap_cpu, cap_mem) in rooms.items():
        if cpu <= cpu_left and mem <= mem_left:
            found[name] = None
        elif cpu > cap_cpu or mem > cap_mem:
            found[name] = Reason.TOO_SMALL
        elif cpu <= cpu_left:
            found[name] = Reason.MEMORY
        else:
            found[name] = Reason.CPU if mem <= mem_left else Reason.BOTH
    return found


_NOT_ASKED = -(1 << 62)
"""Below whatever is left of a node: a resource of which nothing is asked is not judged."""
