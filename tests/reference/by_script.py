"""Each script by its name and its arguments, as its header lists them, run on the model.

So that one recorded step can be run here and on a server alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from autoscale_enforcer.ledger.outcomes import Keep, Lead, Order, Permit, Reserve
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import NodeRow, PodRow
from tests.reference.books import Books
from tests.reference.node import Node
from tests.reference.world import Loaded, World

Arguments = dict[str, str | int | bytes]
Answer = list[str | int]
"""Word first, then amounts or names."""

REFUSED = "REFUSED"
"""No script's word: whatever is answered, an error too, nothing may be written."""


def run(world: World, script: str, a: Arguments, *, now: int, building: bool = False) -> Answer:
    """The answer that the script must give; what it must change is changed in `world`.

    Left out are the server's clock, versions, and rows that the caller finds in `world`.
    """
    if script in OF_WORLD:
        return OF_WORLD[script](world, a, now)
    if not _is_row(a.get("said", "")):
        return [REFUSED]
    books = world.building if building else world.live
    if books:
        books.frozen = frozenset(world.freezes)
    if script in READS:
        return READS[script](books or Books(epoch=""), a, now)
    if books is None or a["epoch"] != books.epoch:
        return ["EPOCH"]
    return CHANGES[script](books, a, now)


def _check_ledger(world: World, a: Arguments, _: int) -> Answer:
    return [world.look(new_epoch=str(a["new_epoch"]))]


def _migrate_ledger(world: World, a: Arguments, _: int) -> Answer:
    fits = len(str(a["node_fields"]).split()) == len(fields(NodeRow))
    new_epoch = str(a["new_epoch"])
    return [world.migrate(int(a["from"]), int(a["to"]), new_epoch=new_epoch, fits=fits)]


def _take_lease(world: World, a: Arguments, _: int) -> Answer:
    word = world.take_lease(str(a["holder"]), _token(a))
    return [word, world.lease[0]] if word is Lead.HELD and world.lease else [word]


def _drop_lease(world: World, a: Arguments, _: int) -> Answer:
    return [world.drop_lease(_token(a))]


def _lose_books(world: World, a: Arguments, now: int) -> Answer:
    word = world.lose_books(_token(a), now=now)
    return [word, world.lost_ms] if word is Lead.LOST else [word]


def _begin_build(world: World, a: Arguments, _: int) -> Answer:
    return [world.begin_build(token=_token(a), epoch=str(a["epoch"]))]


def _load_row(world: World, a: Arguments, now: int) -> Answer:
    kind: type[NodeRow | PodRow] = NodeRow if a["kind"] == "node" else PodRow
    row = kind.decode(str(a["row"]))
    return [world.load_row(str(a["id"]), row, blob=_blob(a), token=_token(a), now=now)]


def _load_pods(world: World, a: Arguments, now: int) -> Answer:
    facts, blobs = [], _blob(a, "blobs")
    for line in str(a["rows"]).split("\n"):
        uid, cpu, mem, size, row = line.split(" ", 4)
        if not _is_row(row):
            return [REFUSED]
        blob, blobs = blobs[: int(size)], blobs[int(size) :]
        approved = Resources(int(cpu), int(mem))
        facts.append(Loaded(PodUid(uid), PodRow.decode(row), approved, blob))
    left = world.load_pods(facts, epoch=str(a["epoch"]), token=_token(a), now=now)
    return [Lead.FENCED] if left is None else [Lead.LOADED, *left]


def _publish_build(world: World, a: Arguments, now: int) -> Answer:
    word = world.publish(
        token=_token(a),
        is_suspect=a["state"] == "suspect",
        settle_after_ms=int(a["settle_after_ms"]),
        now=now,
    )
    return [word]


def _trim_changes(world: World, a: Arguments, now: int) -> Answer:
    if world.live is None or world.live.token != a["token"]:
        return [Keep.FENCED]
    world.live.forget_gone(now)
    return [Keep.TRIMMED]


def _claim_ledger(world: World, a: Arguments, _: int) -> Answer:
    word = world.claim(str(a["cluster"]))
    return [word, world.owner] if word is Keep.FOREIGN else [word]


def _put_config(world: World, a: Arguments, _: int) -> Answer:
    return [world.put_config(str(a["version"]), str(a["text"]))]


def _read_config(world: World, _: Arguments, __: int) -> Answer:
    return ["CONFIG", *world.config] if world.config else ["NOTHING"]


def _note_binding(world: World, a: Arguments, _: int) -> Answer:
    return ["NOTED", world.bindings.setdefault(_uid(a), _node(a))]


def _note_loss(_: World, __: Arguments, ___: int) -> Answer:
    return ["NOTED"]


def _read_bindings(_: World, __: Arguments, ___: int) -> Answer:
    return ["BINDINGS"]


def _freeze_grants(world: World, a: Arguments, now: int) -> Answer:
    node, note = str(a["node"]), world.freezes.get(str(a["node"]))
    word = world.freeze(node, context=_blob(a, "context").decode(), dry=bool(a["dry"]), now=now)
    return [word, note] if word is Order.ALREADY and note else [word]


def _thaw_grants(world: World, a: Arguments, _: int) -> Answer:
    note = world.freezes.get(str(a["node"]))
    word = world.thaw(str(a["node"]), dry=bool(a["dry"]))
    return [word, note] if note else [word]


def _ask_compare(world: World, _: Arguments, now: int) -> Answer:
    world.compare["asked"] = str(now)
    return ["ASKED"]


def _note_compared(world: World, a: Arguments, _: int) -> Answer:
    asked, replica, mended = str(a["asked"]), str(a["replica"]), str(a["mended"])
    return [world.note_compared(_token(a), asked=asked, replica=replica, mended=mended)]


def _read_compare(world: World, _: Arguments, __: int) -> Answer:
    empty = {"asked": "0", "done": "0", "replica": "", "mended": "0"}
    return ["COMPARE", *(empty | world.compare).values()]


def _release_leftover(books: Books, a: Arguments, now: int) -> Answer:
    return [books.release_leftover(_uid(a), now=now)]


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


def _unreserve_pod(books: Books, a: Arguments, _: int) -> Answer:
    return [books.unreserve(_uid(a), node=_node(a), stamp=int(a["stamp"]))]


def _abandon_bind(books: Books, a: Arguments, _: int) -> Answer:
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
            token=_token(a),
            finished=bool(a["finished"]),
            deleting=bool(a["deleting"]),
            approved=_amount(a, "approved_"),
            blob=_blob(a),
            now=now,
        )
    ]


def _delete_pod(books: Books, a: Arguments, now: int) -> Answer:
    return [books.delete_pod(_uid(a), token=_token(a), now=now)]


def _put_node(books: Books, a: Arguments, _: int) -> Answer:
    node = Node(str(a["uid"]), str(a["rv"]), str(a["config"]), _amount(a, "cap_"))
    name = NodeName(str(a["name"]))
    return [books.put_node(name, node, token=_token(a), blob=_blob(a))]


def _delete_node(books: Books, a: Arguments, now: int) -> Answer:
    name = NodeName(str(a["name"]))
    return [books.delete_node(name, uid=str(a["uid"]), token=_token(a), now=now)]


def _recount_node(books: Books, a: Arguments, _: int) -> Answer:
    is_past = int(a["version"]) > 0  # how far off the node's own: the runner fills it in
    return [books.recount(NodeName(str(a["name"])), token=_token(a), is_past=is_past)]


def _settle_ledger(books: Books, a: Arguments, now: int) -> Answer:
    after = int(a["settle_after_ms"])
    return [books.settle(token=_token(a), settle_after_ms=after, now=now)]


def _read_pod(books: Books, a: Arguments, _: int) -> Answer:
    uid = _uid(a) or books.names.get(PodName(str(a["name"])), PodUid(""))
    if uid in books.pods:
        return ["POD", uid]
    return ["GONE" if uid in books.gone else "UNKNOWN"]


def _find_lapsed(books: Books, a: Arguments, now: int) -> Answer:
    return ["LAPSED", *(uid for uid, _ in books.lapsed(limit=int(a["limit"]), now=now))]


def _scan_books(books: Books, _: Arguments, __: int) -> Answer:
    return ["PORTION", *books.pods]


def _read_rows(_: Books, __: Arguments, ___: int) -> Answer:
    return ["ROWS"]


def _find_unlisted(_: Books, __: Arguments, ___: int) -> Answer:
    return ["UNLISTED"]


OF_WORLD: dict[str, Callable[[World, Arguments, int], Answer]] = {
    "check_ledger": _check_ledger,
    "migrate_ledger": _migrate_ledger,
    "take_lease": _take_lease,
    "drop_lease": _drop_lease,
    "lose_books": _lose_books,
    "begin_build": _begin_build,
    "load_row": _load_row,
    "load_pods": _load_pods,
    "publish_build": _publish_build,
    "trim_changes": _trim_changes,
    "claim_ledger": _claim_ledger,
    "put_config": _put_config,
    "read_config": _read_config,
    "note_binding": _note_binding,
    "note_loss": _note_loss,
    "read_bindings": _read_bindings,
    "freeze_grants": _freeze_grants,
    "thaw_grants": _thaw_grants,
    "ask_compare": _ask_compare,
    "note_compared": _note_compared,
    "read_compare": _read_compare,
}

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
    "recount_node": _recount_node,
    "release_leftover": _release_leftover,
}

READS: dict[str, Callable[[Books, Arguments, int], Answer]] = {
    "read_pod": _read_pod,
    "find_lapsed": _find_lapsed,
    "scan_books": _scan_books,
    "read_rows": _read_rows,
    "find_unlisted": _find_unlisted,
}


def _is_row(said: str | int | bytes) -> bool:
    return not said or len(str(said).split(" ")) == len(fields(PodRow))


def _uid(a: Arguments) -> PodUid:
    return PodUid(str(a["uid"]))


def _token(a: Arguments) -> str:
    return str(a["token"])


def _blob(a: Arguments, name: str = "blob") -> bytes:
    blob = a[name]
    return blob if isinstance(blob, bytes) else str(blob).encode()


def _node(a: Arguments) -> NodeName:
    return NodeName(str(a["node"]))


def _said(a: Arguments) -> PodRow | None:
    return PodRow.decode(str(a["said"])) if a["said"] else None


def _amount(a: Arguments, prefix: str) -> Resources:
    return Resources(int(a[f"{prefix}cpu"]), int(a[f"{prefix}mem"]))
