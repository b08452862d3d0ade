"""What the journal must tell of a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from typing import Any

from autoscale_enforcer.ledger.journal import HoldState, JournalEntry
from autoscale_enforcer.ledger.verify import SUMS
from autoscale_enforcer.ledger.verify import Books as Found
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.rows import NodeRow, PodRow
from tests.property.expecting import Expected
from tests.property.story import Step

NODE_FACTS = {"put_node", "delete_node"}

ORDERS = {"freeze_grants": "freeze", "thaw_grants": "thaw", "ask_compare": "reconcile"}
"""What operators order, and what the journal calls it."""

Entry = tuple[Any, ...]
"""what, uid, node before, node after, state before, state after, room, context"""


def entries(step: Step, was: Found | None, should: Expected, *, epoch: str) -> Iterator[Entry]:
    """One for each hold and each capacity that has changed, and for each new epoch.

    `was` is what the model had before; `epoch` the one that the server was in, empty where unbuilt.
    """
    live = should.live
    word = should.answer[0] if should.answer else ""
    if step.script in ORDERS or step.script == "migrate_ledger":
        yield from _of_order(step, word)
    elif step.script == "note_loss":
        yield _of_books("dropped", str(step.given["told"]), live.meta["epoch"] if live else "")
    elif live is None:
        if word in ("UNBUILT", "LOST") and epoch:
            yield _of_books("lost", epoch, "", step.given.get("context", b""))
    elif whole := _of_one_step(step, str(word), live):
        yield whole
    elif was and was.meta["epoch"] != live.meta["epoch"]:
        yield _of_books("suspect", was.meta["epoch"], live.meta["epoch"])
    elif was:
        yield from _of_rows(step, was, live, word)


def told(entry: JournalEntry, context: bytes) -> Entry:
    """The entry that a script wrote, in the same form."""
    is_restored = entry.what == "restore"  # a request too, of which a part is a fact
    what = "request" if is_restored else entry.what
    states = (_told(entry.before), _told(entry.after)) if entry.is_of_pod else entry.detail
    return what, entry.uid, entry.source, entry.node, *states, entry.room, context


def _of_one_step(step: Step, word: str, live: Found) -> Entry | None:
    match step.script, word:
        case "publish_build", "PUBLISHED":
            return _of_books("build", "", live.meta["epoch"])
        case "settle_ledger", "SETTLED":
            return _of_books("settle", "suspect", "settled")
    return None


def _of_books(what: str, before: str, after: str, context: object = b"") -> Entry:
    return what, "-", "-", "-", before, after, (), context


def _of_order(step: Step, word: object) -> Iterator[Entry]:
    if word in ("FROZEN", "THAWED", "ASKED") and not step.given.get("dry"):
        node, context = step.given.get("node", "*"), step.given["context"]
        yield ORDERS[step.script], "-", "-", node, "", "", (), context
    elif word in ("MIGRATED", "GIVEN_UP"):
        what = "migrate" if word == "MIGRATED" else "lost"
        yield _of_books(what, str(step.given["from"]), str(step.given["to"]))


def _of_sums(step: Step, live: Found) -> Entry:
    """Each was one more than it is."""
    name = NodeName(str(step.given["name"]))
    sums = [getattr(live.nodes[name], field) for field in SUMS if field != "heard"]
    states = (" ".join(str(each + by) for each in sums) for by in (1, 0))
    return "recount", "-", "-", name, *states, (), step.given["context"]


def _of_rows(step: Step, was: Found, live: Found, word: object) -> Iterator[Entry]:
    context = step.given.get("context", b"")
    if word == "RECOUNTED":
        yield _of_sums(step, live)
    for uid in was.pods.keys() | live.pods.keys():
        yield from _of_pod(step, uid, was, live)
    if step.script in NODE_FACTS and not step.building:
        name = NodeName(str(step.given["name"]))
        before, after = _node_state(was.nodes.get(name)), _node_state(live.nodes.get(name))
        if before != after:
            yield step.script, "-", "-", name, before, after, (), context


def _of_pod(step: Step, uid: PodUid, was: Found, live: Found) -> Iterator[Entry]:
    before, after = was.pods.get(uid), live.pods.get(uid)
    source, node = before.node if before else "-", after.node if after else "-"
    was_state = HoldState.of(before) if before else None
    state = HoldState.of(after) if after else None
    if source == node and was_state == state:
        return
    room: tuple[int, ...] = ()
    if after and after.holds:
        row = live.nodes[NodeName(node)]
        room = (row.reserved_cpu, row.reserved_mem, row.cap_cpu, row.cap_mem)
    what, context = _what(step, uid, after), step.given.get("context", b"")
    yield what, uid, source, node, _told(was_state), _told(state), room, context


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
        "release_leftover": "release",
    }.get(step.script, step.script)


def _told(state: HoldState | None) -> str:
    return " ".join(str(value) for value in astuple(state)) if state else ""


def _node_state(row: NodeRow | None) -> str:
    return f"{row.absent} {row.cap_cpu} {row.cap_mem}" if row else ""
