"""All that the ledger's keys hold, run script by script: books, a build beside them, a lease.

`World.run` takes a script's name and its arguments, as the header lists them, and gives the answer
that the script must give; so one recorded step can be run here and on a server alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

from autoscale_enforcer.ledger.outcomes import Lead, Permit, Reserve
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import NodeRow, PodRow
from tests.reference.books import Books, Node

Arguments = dict[str, str | int | bytes]
Answer = list[str | int]
"""Word first, then amounts or names."""

REFUSED = "REFUSED"
"""No script's word: whatever is answered, an error too, nothing may be written."""

HAPPENINGS = ("promotion", "loss", "row_loss", "lease_end")
"""What befalls the server itself; no script."""


@dataclass(slots=True)
class World:
    """What is in the keys of one Kubernetes cluster's ledger."""

    live: Books | None = None
    """None: unbuilt."""
    building: Books | None = None
    lease: tuple[str, str] | None = None
    """Holder and token."""
    is_promoted: bool = False
    """Another server answers than the books were last seen on."""
    bindings: dict[PodUid, NodeName] = field(default_factory=dict)
    """File source only."""

    def happen(self, what: str) -> None:
        """One of HAPPENINGS."""
        if what == "promotion":
            self.is_promoted = True
        elif what == "lease_end":
            self.lease = None
        elif what == "loss":
            self.live = self.building = self.lease = None
            self.bindings = {}
        else:
            self.live = None

    def run(self, script: str, a: Arguments, *, now: int, building: bool = False) -> Answer:
        """The script's answer; what it must have changed is changed here."""
        match script:
            case "check_ledger":
                return self._check_ledger(a)
            case "take_lease":
                return self._take_lease(a)
            case "drop_lease":
                return self._drop_lease(a)
            case "begin_build":
                return self._begin_build(a)
            case "load_row":
                return self._load_row(a)
            case "publish_build":
                return self._publish_build(a, now)
            case "note_binding":
                return ["NOTED", self.bindings.setdefault(_uid(a), _node(a))]
            case "read_bindings":
                return ["BINDINGS"]
        if not _is_row(a.get("said", "")):
            return [REFUSED]
        books = self.building if building else self.live
        if script in READS:
            return READS[script](books or Books(epoch=""), a, now)
        if books is None or a["epoch"] != books.epoch:
            return ["EPOCH"]
        return CHANGES[script](books, a, now)

    def _check_ledger(self, a: Arguments) -> Answer:
        if self.live is None:
            return ["UNBUILT"]
        if self.is_promoted and a["watch"]:
            self.live.begin_epoch(str(a["new_epoch"]))
            self.is_promoted = False
        word = "SUSPECT" if self.live.is_suspect else "SETTLED"
        return [word]

    def _take_lease(self, a: Arguments) -> Answer:
        if self.lease and self.lease[1] != a["token"]:
            return [Lead.HELD, self.lease[0]]
        self.lease = (str(a["holder"]), str(a["token"]))
        if self.live:
            self.live.token = self.lease[1]
        return [Lead.LEADER]

    def _drop_lease(self, a: Arguments) -> Answer:
        if not self._leads(a):
            return [Lead.NOTHING]
        self.lease = None
        return [Lead.DROPPED]

    def _begin_build(self, a: Arguments) -> Answer:
        if not self._leads(a):
            return [Lead.FENCED]
        self.building = Books(epoch=str(a["epoch"]), token=str(a["token"]))
        return [Lead.BUILDING]

    def _load_row(self, a: Arguments) -> Answer:
        books = self.building
        if books is None or books.token != a["token"]:
            return [Lead.FENCED]
        text = str(a["row"])
        if a["kind"] == "node":
            row = NodeRow.decode(text)
            books.nodes[NodeName(str(a["id"]))] = Node(
                row.uid, row.rv, row.config, row.capacity, bool(row.absent)
            )
        else:
            pod = PodRow.decode(text)
            books.pods[PodUid(str(a["id"]))] = pod
            books.names[PodName(pod.name)] = PodUid(str(a["id"]))
        if a["blob"]:
            books.blobs[str(a["id"])] = bytes(a["blob"])  # type: ignore[arg-type]
        return [Lead.LOADED]

    def _publish_build(self, a: Arguments, now: int) -> Answer:
        if not self._leads(a) or self.building is None or self.building.token != a["token"]:
            return [Lead.FENCED]
        self.live, self.building, self.is_promoted = self.building, None, False
        self.live.is_suspect = a["state"] == "suspect"
        self.live.settle_ms = now // 1000 + int(a["settle_after_ms"])
        return [Lead.PUBLISHED]

    def _leads(self, a: Arguments) -> bool:
        return self.lease is not None and self.lease[1] == a["token"]


def _reserve_pod(books: Books, a: Arguments, now: int) -> Answer:
    answer = books.reserve(
        _uid(a),
        node=_node(a),
        said=_said(a),
        to="binding" if a["to"] == "binding" else "held",
        stamp=int(a["stamp"]),
        hold_ms=int(a["hold_ms"]),
        now=now,
    )
    if answer.outcome in (Reserve.HELD, Reserve.BINDING, Reserve.BOUND):
        return [answer.outcome, answer.amount.cpu, answer.amount.mem, answer.resource_version]
    return [answer.outcome, *filter(None, [answer.short, answer.node, answer.uid])]


def _unreserve_pod(books: Books, a: Arguments, now: int) -> Answer:
    return [books.unreserve(_uid(a), node=_node(a), stamp=int(a["stamp"]))]


def _abandon_bind(books: Books, a: Arguments, now: int) -> Answer:
    return [books.abandon(_uid(a), node=_node(a), stamp=int(a["stamp"]))]


def _confirm_bind(books: Books, a: Arguments, now: int) -> Answer:
    return [books.confirm(_uid(a), node=_node(a), said=_said(a), now=now)]


def _request_permit(books: Books, a: Arguments, now: int) -> Answer:
    answer = books.request(
        PodName(str(a["name"])),
        asked=_amount(a, ""),
        factor=_amount(a, "factor_"),
        last=_amount(a, "last_"),
        stamp=int(a["stamp"]),
        now=now,
    )
    told = answer.outcome in (Permit.PERMIT, Permit.FIXED)
    return [answer.outcome, *([answer.amount.cpu, answer.amount.mem] if told else [])]


def _put_pod(books: Books, a: Arguments, now: int) -> Answer:
    return [
        books.put_pod(
            _uid(a),
            said=PodRow.decode(str(a["said"])),
            token=str(a["token"]),
            finished=bool(a["finished"]),
            deleting=bool(a["deleting"]),
            approved=_amount(a, "approved_"),
            blob=bytes(a["blob"]),  # type: ignore[arg-type]
            now=now,
        )
    ]


def _delete_pod(books: Books, a: Arguments, now: int) -> Answer:
    return [books.delete_pod(_uid(a), token=str(a["token"]), now=now)]


def _put_node(books: Books, a: Arguments, now: int) -> Answer:
    node = Node(str(a["uid"]), str(a["rv"]), str(a["config"]), _amount(a, "cap_"))
    blob = bytes(a["blob"])  # type: ignore[arg-type]
    name = NodeName(str(a["name"]))
    return [books.put_node(name, node, token=str(a["token"]), blob=blob, now=now)]


def _delete_node(books: Books, a: Arguments, now: int) -> Answer:
    name = NodeName(str(a["name"]))
    return [books.delete_node(name, uid=str(a["uid"]), token=str(a["token"]), now=now)]


def _settle_ledger(books: Books, a: Arguments, now: int) -> Answer:
    after = int(a["settle_after_ms"])
    return [books.settle(token=str(a["token"]), settle_after_ms=after, now=now)]


def _read_pod(books: Books, a: Arguments, now: int) -> Answer:
    uid = _uid(a) or books.names.get(PodName(str(a["name"])), PodUid(""))
    if uid in books.pods:
        return ["POD", uid]
    return ["GONE" if uid in books.gone else "UNKNOWN"]


def _find_lapsed(books: Books, a: Arguments, now: int) -> Answer:
    return ["LAPSED", *(uid for uid, _ in books.lapsed(limit=int(a["limit"]), now=now))]


CHANGES: dict[str, Callable[[Books, Arguments, int], Answer]] = {
    "reserve_pod": _reserve_pod,
    "unreserve_pod": _unreserve_pod,
    "abandon_bind": _abandon_bind,
    "confirm_bind": _confirm_bind,
    "request_permit": _request_permit,
    "put_pod": _put_pod,
    "delete_pod": _delete_pod,
    "put_node": _put_node,
    "delete_node": _delete_node,
    "settle_ledger": _settle_ledger,
}

READS: dict[str, Callable[[Books, Arguments, int], Answer]] = {
    "read_pod": _read_pod,
    "find_lapsed": _find_lapsed,
}


def _is_row(said: str | int | bytes) -> bool:
    return not said or len(str(said).split(" ")) == len(fields(PodRow))


def _uid(a: Arguments) -> PodUid:
    return PodUid(str(a["uid"]))


def _node(a: Arguments) -> NodeName:
    return NodeName(str(a["node"]))


def _said(a: Arguments) -> PodRow | None:
    return PodRow.decode(str(a["said"])) if a["said"] else None


def _amount(a: Arguments, prefix: str) -> Resources:
    return Resources(int(a[f"{prefix}cpu"]), int(a[f"{prefix}mem"]))
