"""Whether a server did with a step what the model did: the answer, every key, every invariant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from autoscale_enforcer.ledger.journal import HoldState, JournalEntry
from autoscale_enforcer.ledger.verify import Books as Found
from autoscale_enforcer.ledger.verify import breaches
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.rows import NodeRow, PodRow
from tests.property.server_side import Keyspace
from tests.property.steps import Step, Story
from tests.reference.books import Books
from tests.reference.world import REFUSED, Answer, World

NODE_FACTS = {"put_node", "delete_node"}
TELL_TIME = {"check_ledger", "find_lapsed"}


@dataclass(frozen=True, slots=True)
class Expected:
    """What must be in the keys once the step is done; made once, compared with any server."""

    answer: Answer
    now: int
    live: Found | None
    building: Found | None
    lease: dict[str, str]
    bindings: dict[str, str]


def expected(answer: Answer, story: Story) -> Expected:
    """What the model says after the step that it has just answered."""
    world: World = story.world
    lease = dict(zip(("holder", "token"), world.lease, strict=True)) if world.lease else {}
    return Expected(
        answer,
        story.now,
        world.live and _as_found(world.live),
        world.building and _as_found(world.building),
        lease,
        {str(uid): str(node) for uid, node in world.bindings.items()},
    )


def _as_found(books: Books) -> Found:
    return Found(
        meta={
            "epoch": books.epoch,
            "fence": books.token,
            "state": "suspect" if books.is_suspect else "settled",
            "settle_ms": str(books.settle_ms),
            "nodes": str(len(books.nodes)),
            "pods": str(len(books.pods)),
        },
        nodes={name: books.node_row(name) for name in books.nodes},
        pods=dict(books.pods),
        names=dict(books.names),
        blobs=dict(books.blobs),
        deadlines={uid: row.deadline for uid, row in books.pods.items() if row.is_tentative},
        gone=dict(books.gone),
    )


@dataclass(slots=True)
class Judge:
    """Compares a server with the model, step after step; every complaint is a line of text."""

    slack_ms: int = 0
    """How far moments may be apart: 0 where both live by the same clock."""
    last: Step | None = None
    before: Keyspace = field(default_factory=lambda: Keyspace(Found(), Found()))
    was: Expected | None = None
    seen: dict[tuple[str, int], dict[NodeName, NodeRow]] = field(default_factory=dict)
    """Nodes as they were at each version of each epoch, for readers of changes."""
    reader: tuple[str, int] = ("", 0)
    words: Counter[tuple[str, str]] = field(default_factory=Counter)

    def fill(self, step: Step) -> Step:
        """The step with what only the server could have told its caller."""
        if step.script != "read_changes":
            return step
        epoch, since = self.reader
        return replace(step, given={"epoch": epoch, "since": since})

    def complaints(
        self, step: Step, should: Expected, answer: list[Any], after: Keyspace
    ) -> list[str]:
        """What is not as it should be; nothing where all is well."""
        if self.slack_ms:
            should = _aligned(should, after, self.slack_ms)
        is_whole = step.script != "load_row"  # sums come with the nodes' rows, before the pods
        found = [
            *self._answer(step, should, answer, after),
            *_books("live", should.live, after.live),
            *(_books("building", should.building, after.building) if is_whole else ()),
            *self._repetition(step, should),
            *_differ("lease", should.lease, after.lease),
            *_differ("bindings", should.bindings, after.bindings),
        ]
        if should.lease and after.lease_ms <= 0:
            found.append(f"the lease never ends: {after.lease_ms}")
        if should.live:
            found += self._versions(step, should, after)
            found += self._journal(step, should, after)
        self.before, self.was, self.last = after, should, step
        return found

    def _answer(
        self, step: Step, should: Expected, answer: list[Any], after: Keyspace
    ) -> Iterator[str]:
        if not answer:
            return
        is_ = [item.decode() if isinstance(item, bytes) else item for item in _readable(answer)]
        self.words[step.script, str(is_[0])] += 1
        if step.script == "read_changes":
            yield from self._changes(should, answer, after)
            return
        if step.script in TELL_TIME and abs(int(is_[1]) - should.now) <= self.slack_ms * 1000:
            is_[1] = str(should.now)
        want = is_ if should.answer == [REFUSED] else _whole_answer(step, should, after)
        if is_ != want:
            yield f"answered {is_}, not {want}"

    def _repetition(self, step: Step, should: Expected) -> Iterator[str]:
        """The same call with its stamp, at once: at most a permit may have grown."""
        was, live = self.was and self.was.live, should.live
        if step != self.last or "stamp" not in step.given or not (was and live):
            return
        for uid in was.pods.keys() | live.pods.keys():
            before, after = was.pods.get(uid), live.pods.get(uid)
            if before is None or after is None or before.stage != after.stage:
                yield f"the second time {uid} went from {before} to {after}"
            elif before.node != after.node or before.amount.at_most(after.amount) != before.amount:
                yield f"the second time {uid} went from {before} to {after}"

    def _changes(self, should: Expected, answer: list[Any], after: Keyspace) -> Iterator[str]:
        """A reader who takes in what is answered has the nodes as they are."""
        word, *rest = answer
        if should.live is None:
            if answer != [b"UNBUILT"]:
                yield f"answered {answer} without books"
            return
        meta, flat = rest[:4], rest[4:]
        epoch, version = should.live.meta["epoch"], int(after.live.meta["version"])
        want = [epoch.encode(), version, should.live.meta["state"].encode()]
        if meta != [*want, int(should.live.meta["settle_ms"])]:
            yield f"answered {meta}"
        is_delta = self.reader[0] == epoch
        if word != (b"DELTA" if is_delta else b"FULL"):
            yield f"answered {word!r} to {self.reader}"
        rows = dict(self.seen[self.reader]) if is_delta else {}
        for name, text in zip(flat[::2], flat[1::2], strict=True):
            rows.pop(NodeName(name.decode()), None)
            if text:
                rows[NodeName(name.decode())] = NodeRow.decode(text.decode())
        yield from _differ("rows of the reader", after.live.nodes, rows)
        self.reader = (epoch, version)

    def _versions(self, step: Step, should: Expected, after: Keyspace) -> Iterator[str]:
        """A version rises with each row that changes, and with nothing else."""
        has_new_books = bool(should.answer) and should.answer[0] == "PUBLISHED"
        before = self.before.building if has_new_books else self.before.live
        known = int(before.meta.get("version", 0))
        epoch = after.live.meta["epoch"]
        was, is_ = _unversioned(before, epoch), _unversioned(after.live, epoch)
        for name in before.changes.keys() | after.live.changes.keys() | was.keys() | is_.keys():
            version = after.live.changes.get(name, 0)
            if was.get(name) == is_.get(name):
                if version != before.changes.get(name, 0):
                    yield f"version of {name} rose to {version}, nothing has changed"
            elif version <= known:
                yield f"version of {name} is {version}, which readers had before it changed"
        newest = int(after.live.meta["version"])
        if newest != max(after.live.changes.values(), default=0):
            yield f"the newest version is {newest}, in the list {after.live.changes}"
        self.seen[epoch, newest] = after.live.nodes

    def _journal(self, step: Step, should: Expected, after: Keyspace) -> Iterator[str]:
        is_ = sorted(_summary(entry, context) for entry, context in after.journal)
        want = sorted(self._entries(step, should))
        if is_ != want:
            yield f"the journal got {is_}, not {want}"

    def _entries(self, step: Step, should: Expected) -> Iterator[tuple[Any, ...]]:
        """What the journal must tell of this step."""
        was, live = self.was and self.was.live, should.live
        word = should.answer[0] if should.answer else ""
        context = step.given.get("context", b"")
        if word == "PUBLISHED" and live:
            yield "build", "-", "-", "-", "", live.meta["epoch"], (), b""
        elif word == "SETTLED" and step.script == "settle_ledger":
            yield "settle", "-", "-", "-", "suspect", "settled", (), b""
        elif was and live and was.meta["epoch"] != live.meta["epoch"]:
            yield "suspect", "-", "-", "-", was.meta["epoch"], live.meta["epoch"], (), b""
        elif was and live:
            for uid in was.pods.keys() | live.pods.keys():
                yield from _pod_entry(step, uid, was, live, context)
            if step.script in NODE_FACTS and not step.building:
                name = NodeName(str(step.given["name"]))
                states = _node_state(was.nodes.get(name)), _node_state(live.nodes.get(name))
                if states[0] != states[1]:
                    yield step.script, "-", "-", name, *states, (), context


def _pod_entry(
    step: Step, uid: PodUid, was: Found, live: Found, context: Any
) -> Iterator[tuple[Any, ...]]:
    before, after = was.pods.get(uid), live.pods.get(uid)
    source, node = before.node if before else "-", after.node if after else "-"
    states = before and HoldState.of(before), after and HoldState.of(after)
    if source == node and states[0] == states[1]:
        return
    room: tuple[int, ...] = ()
    if after and after.holds:
        row = live.nodes[NodeName(node)]
        room = (row.reserved_cpu, row.reserved_mem, row.cap_cpu, row.cap_mem)
    what = _what(step, uid, after)
    yield what, uid, source, node, *map(_told, states), room, context


def _what(step: Step, uid: PodUid, after: PodRow | None) -> str:
    """What the journal calls it."""
    if uid != step.given.get("uid", uid):
        return "replace"
    if step.script == "reserve_pod":
        return "begin_bind" if step.given["to"] == "binding" else "reserve"
    if step.script == "put_pod" and after is None:
        return "finish"
    return {
        "unreserve_pod": "unreserve",
        "abandon_bind": "abandon",
        "confirm_bind": "confirm",
        "request_permit": "request",
    }.get(step.script, step.script)


def _summary(entry: JournalEntry, context: bytes) -> tuple[Any, ...]:
    is_restored = entry.what == "restore"  # a request too, of which a part is a fact
    what = "request" if is_restored else entry.what
    if entry.is_of_pod:
        states = _told(entry.before), _told(entry.after)
    else:
        states = entry.detail
    return what, entry.uid, entry.source, entry.node, *states, entry.room, context


def _told(state: HoldState | None) -> str:
    return " ".join(str(value) for value in astuple(state)) if state else ""


def _node_state(row: NodeRow | None) -> str:
    return f"{row.absent} {row.cap_cpu} {row.cap_mem}" if row else ""


def _readable(answer: list[Any]) -> list[Any]:
    """The blob that read_pod gives is none of our text."""
    return [*answer[:3], *map(bytes.hex, answer[3:])] if answer[0] == b"POD" else answer


def _whole_answer(step: Step, should: Expected, after: Keyspace) -> list[Any]:
    """The model's answer, with what it leaves out."""
    word, *rest = should.answer
    live = should.live or Found()
    now = str(should.now)
    if step.script == "check_ledger":
        if word == "UNBUILT":
            return [word, now, "", 0, 0]
        version, settle_ms = int(after.live.meta["version"]), int(live.meta["settle_ms"])
        return [word, now, live.meta["epoch"], version, settle_ms]
    if step.script == "find_lapsed":
        pairs = ((uid, live.pods[PodUid(str(uid))].encode()) for uid in rest)
        return [word, now, *(item for pair in pairs for item in pair)]
    if word == "POD":
        uid = PodUid(str(rest[0]))
        return [word, uid, live.pods[uid].encode(), live.blobs.get(uid, b"").hex()]
    if word == "BINDINGS":
        return [word, *(item for pair in after.bindings.items() for item in pair)]
    return [str(word), *rest]


def _aligned(should: Expected, is_: Keyspace, slack_ms: int) -> Expected:
    """`should` with the server's moments in the place of its own, where they are close enough."""
    live = should.live and _moments_of(should.live, is_.live, slack_ms)
    building = should.building and _moments_of(should.building, is_.building, slack_ms)
    return replace(should, live=live, building=building)


def _moments_of(should: Found, is_: Found, slack_ms: int) -> Found:
    def moment(mine: int, its: int | None) -> int:
        return its if its and abs(mine - its) <= slack_ms else mine

    pods = {
        uid: replace(row, deadline=moment(row.deadline, is_.deadlines.get(uid)))
        for uid, row in should.pods.items()
    }
    settle_ms = moment(int(should.meta["settle_ms"]), int(is_.meta.get("settle_ms", 0)))
    return replace(
        should,
        pods=pods,
        deadlines={uid: row.deadline for uid, row in pods.items() if row.is_tentative},
        gone={uid: moment(at, is_.gone.get(uid)) for uid, at in should.gone.items()},
        meta=should.meta | {"settle_ms": str(settle_ms)},
    )


def _books(side: str, should: Found | None, is_: Found) -> Iterator[str]:
    if should is None:
        if side == "building":
            yield from _differ("keys beside the books", Found(), is_)
        return
    for part in ("pods", "names", "blobs", "deadlines", "gone"):
        yield from _differ(f"{side} {part}", getattr(should, part), getattr(is_, part))
    epoch = should.meta["epoch"]
    yield from _differ(f"{side} nodes", should.nodes, _unversioned(is_, epoch))
    yield from _differ(f"{side} meta", should.meta, {k: is_.meta.get(k) for k in should.meta})
    yield from (f"{side}: {breach}" for breach in breaches(is_))


def _unversioned(found: Found, epoch: str) -> dict[NodeName, NodeRow]:
    """The nodes' rows without what may differ: who was heard in an older epoch, and the version."""
    return {
        name: replace(row, version=0, epoch=epoch, heard=row.heard if row.epoch == epoch else 0)
        for name, row in found.nodes.items()
    }


def _differ(what: str, should: Any, is_: Any) -> Iterator[str]:
    if should == is_:
        return
    if not isinstance(should, dict):
        yield f"{what}: {is_}, not {should}"
        return
    for key in sorted(should.keys() | is_.keys(), key=str):
        if should.get(key) != is_.get(key):
            yield f"{what} {key}:\n    is     {is_.get(key)}\n    not    {should.get(key)}"
