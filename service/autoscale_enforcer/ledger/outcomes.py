"""What the scripts may answer, word for word; each member says what has become of the books.

The words of a class are those of the script's header (a contract test compares them), but for
EPOCH, which the pipeline answers by deciding the call anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import PodRow


class Reserve(StrEnum):
    """Answers of `reserve_pod`. Only HELD and BINDING (when asked for) may have written."""

    HELD = "HELD"
    """Held on that node, now or already."""
    BINDING = "BINDING"
    """A Binding may be sent, or (when only a hold was asked for) one is under way."""
    BOUND = "BOUND"
    """Bound to that node already."""
    NO_ROOM = "NO_ROOM"
    """It does not fit; `short` says of what too little is left."""
    NO_NODE = "NO_NODE"
    """Nobody knows the node, or it has left."""
    FROZEN = "FROZEN"
    """An operator has stopped grants there."""
    UNSETTLED = "UNSETTLED"
    """What was promised before a loss may be missing there; ask again in seconds."""
    BUSY = "BUSY"
    """A Binding to `node` is under way."""
    CONFLICT = "CONFLICT"
    """Bound to `node`."""
    NAME_TAKEN = "NAME_TAKEN"
    """Another pod of that name, `uid`, is binding or bound; a live read decides."""
    GONE = "GONE"
    """Finished, deleted, or older than the pod that has its name now."""
    IGNORED = "IGNORED"
    """Its namespace is ignored: it is bound without a hold."""
    UNREADABLE = "UNREADABLE"
    """A VM whose own data cannot be read."""
    UNKNOWN = "UNKNOWN"
    """Nothing was said of the pod and the ledger knows nothing of it."""
    LATE = "LATE"
    """Something newer has changed it; ask again."""


class Release(StrEnum):
    """Answers of `unreserve_pod`, `abandon_bind` and `release_leftover`."""

    RELEASED = "RELEASED"
    """The room is free again."""
    NOTHING = "NOTHING"
    """There was no such hold."""
    LATE = "LATE"
    """Something newer has changed what is held there: ask again where it is to go."""


class Confirm(StrEnum):
    """Answers of `confirm_bind`."""

    BOUND = "BOUND"
    """Booked as bound to that node, now or already."""
    GONE = "GONE"
    """Finished, deleted, or older than the pod that has its name now."""
    UNKNOWN = "UNKNOWN"
    """Nothing was said of the pod and the ledger knows nothing of it."""


class Permit(StrEnum):
    """Answers of `request_permit`. Only PERMIT may have written."""

    PERMIT = "PERMIT"
    """`amount` is the most that the VM may use from now on."""
    FIXED = "FIXED"
    """Autoscaling is off: `amount` is what it holds."""
    UNKNOWN = "UNKNOWN"
    """Nobody knows a pod of that name."""
    UNBOUND = "UNBOUND"
    """Known, but not bound yet."""
    NOT_VM = "NOT_VM"
    """A pod that runs no VM."""
    UNREADABLE = "UNREADABLE"
    """Its VM's data cannot be read."""
    LATE = "LATE"
    """Something newer has changed it; ask again."""


DENIALS = {
    "reserve_pod": frozenset(Reserve)
    - {Reserve.HELD, Reserve.BINDING, Reserve.BOUND, Reserve.IGNORED},
    "request_permit": frozenset(Permit) - {Permit.PERMIT, Permit.FIXED},
}
"""By script: the words after which its caller relies on holding nothing by this call."""


class Fact(StrEnum):
    """Answers of `put_pod`, `put_node`, `delete_pod` and `delete_node`."""

    BOOKED = "BOOKED"
    """The row now says what the fact says."""
    KNOWN = "KNOWN"
    """It said so already, or it is not this caller's to change."""
    RELEASED = "RELEASED"
    """The pod is finished, or deleted while unbound: it holds nothing."""
    OLD = "OLD"
    """An older version than what is known."""
    GONE = "GONE"
    """Deleted before."""
    FENCED = "FENCED"
    """Another replica leads now."""
    DELETED = "DELETED"
    """The row is gone."""
    ABSENT = "ABSENT"
    """The node has left, its pods go on counting."""
    NOTHING = "NOTHING"
    """There was no such row."""


class Recount(StrEnum):
    """Answers of `recount_node`."""

    RECOUNTED = "RECOUNTED"
    """The node's sums were not those of its pods, and are now."""
    RIGHT = "RIGHT"
    """They were."""
    CHANGED = "CHANGED"
    """The node has changed since its pods were read, or is gone."""
    FENCED = "FENCED"
    """Another replica leads now."""


class Lead(StrEnum):
    """Answers of the lease, loss, build, settle, compare and migrate scripts."""

    LEADER = "LEADER"
    """This replica leads."""
    HELD = "HELD"
    """Another replica leads."""
    DROPPED = "DROPPED"
    """This replica leads no more."""
    BUILDING = "BUILDING"
    """The keys beside the books are empty and ready for facts."""
    LOST = "LOST"
    """There are no books, now or already."""
    LOADED = "LOADED"
    """An exported row is beside the books."""
    PUBLISHED = "PUBLISHED"
    """What was built is the ledger now."""
    SETTLED = "SETTLED"
    """The suspect books have been compared."""
    COMPARED = "COMPARED"
    """Whoever asked for a compare is told that it is over."""
    MIGRATED = "MIGRATED"
    """Every row is of the next schema."""
    GIVEN_UP = "GIVEN_UP"
    """A row could not be migrated: the books are to be built anew."""
    NOTHING = "NOTHING"
    """There was nothing to do."""
    FENCED = "FENCED"
    """Another replica leads now."""


class Order(StrEnum):
    """Answers of `freeze_grants` and `thaw_grants`."""

    FROZEN = "FROZEN"
    """Nothing is granted there from now on."""
    ALREADY = "ALREADY"
    """It was frozen before."""
    NO_NODE = "NO_NODE"
    """Nobody knows the node."""
    THAWED = "THAWED"
    """Grants go on there, unless another freeze is in the way."""
    NOTHING = "NOTHING"
    """There was no such freeze."""


class Keep(StrEnum):
    """Answers of `claim_ledger`, `put_config` and `trim_changes`."""

    CLAIMED = "CLAIMED"
    """The ledger is this cluster's."""
    FOREIGN = "FOREIGN"
    """The ledger is another cluster's."""
    KEPT = "KEPT"
    """The config is kept, now or already."""
    OLD = "OLD"
    """A newer config is kept."""
    TRIMMED = "TRIMMED"
    """What every replica has heard of is forgotten."""
    FENCED = "FENCED"
    """Another replica leads now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveAnswer:
    """What became of a reserve or the begin of a bind."""

    outcome: Reserve
    amount: Resources = NOTHING
    """What is held, for HELD, BINDING and BOUND."""
    resource_version: str = ""
    """Of the pod that was judged, for the same; '-' where it is not known."""
    short: str = ""
    """cpu, mem or cpu_mem, for NO_ROOM."""
    node: NodeName | None = None
    """Where it is, for BUSY and CONFLICT."""
    uid: PodUid | None = None
    """Who has the name, for NAME_TAKEN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitAnswer:
    """What an agent may be told."""

    outcome: Permit
    amount: Resources = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPod:
    """What the ledger knows of one pod."""

    uid: PodUid
    row: PodRow
    blob: bytes
    """What was put beside the row, empty where nothing was."""


@dataclass(frozen=True, slots=True)
class Lapsed:
    """Tentative holds past their deadline, and Redis' time (us) at which they were found."""

    stamp: int
    pods: list[tuple[PodUid, PodRow]]


@dataclass(frozen=True, slots=True)
class Compare:
    """Requests for a compare, as Redis' time (us) at which they were made; 0: none ever."""

    asked: int
    """The newest request."""
    done: int
    """The newest request that was answered."""
    replica: str
    """Who answered it."""
    mended: int
    """Rows that were found to differ from the cluster."""

    @property
    def is_open(self) -> bool:
        """A request waits for its compare."""
        return self.asked > self.done
