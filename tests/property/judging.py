"""Whether a server did with a step what the model did: the answer, every key, every invariant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from autoscale_enforcer.ledger.verify import Books as Found
from autoscale_enforcer.ledger.verify import breaches
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.rows import PodRow
from tests.property.expecting import Expected, aligned, near
from tests.property.server_side import Keyspace
from tests.property.story import Step
from tests.property.telling import entries, told
from tests.property.versions import Reader, to_be_forgotten, unversioned, wrong_versions
from tests.reference.by_script import REFUSED
from tests.reference.world import HAPPENINGS

ASIDE = {"cluster", "config_version", "config"}
TELL_TIME = {"check_ledger", "find_lapsed", "ask_compare"}
TELL_FREEZE = {"freeze_grants", "thaw_grants"}


@dataclass(slots=True)
class Judge:
    """Compares a server with the model, step after step; every complaint is a line of text."""

    slack_ms: int = 0
    """How far moments may be apart: 0 where both live by the same clock."""
    words: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Each script's answers."""
    last: Step | None = None
    was: Expected | None = None
    before: Keyspace = field(default_factory=lambda: Keyspace(Found(), Found()))
    reader: Reader = field(default_factory=Reader)

    def fill(self, step: Step) -> Step:
        """The step with what only the server could have told its caller."""
        if step.script == "read_changes":
            return replace(step, given=self.reader.asks())
        if step.script == "recount_node":
            row = self.before.live.nodes.get(NodeName(str(step.given["name"])))
            version = (row.version if row else 0) + int(step.given["version"])
            return replace(step, given=step.given | {"version": version})
        if step.script == "trim_changes":
            newest = int(self.before.live.meta.get("version", 0))
            behind = int(step.given["before"])
            return replace(step, given=step.given | {"before": max(newest - behind, 0)})
        return step

    def complaints(
        self, step: Step, should: Expected, answer: list[Any], after: Keyspace
    ) -> list[str]:
        """What is not as it should be; nothing where all is well."""
        if self.slack_ms:
            should = aligned(should, after, self.slack_ms)
        found = [
            *self._answer(step, should, answer, after),
            *_keyspace(step, should, after),
            *self._repetition(step, should),
            *self._journal(step, should, after),
            *self._versions(step, should, after),
        ]
        self.before, self.was, self.last = after, should, step
        return found

    def _answer(
        self, step: Step, should: Expected, answer: list[Any], after: Keyspace
    ) -> Iterator[str]:
        if not answer:
            return
        self.words[step.script, answer[0].decode()] += 1
        if step.script == "read_changes" and should.live:
            yield from self.reader.take(answer, after.live, after.freezes)
            return
        is_ = [item.decode() if isinstance(item, bytes) else item for item in answer]
        if step.script in TELL_TIME and abs(int(is_[1]) - should.now) <= self.slack_ms * 1000:
            is_[1] = str(should.now)
        want = _whole_answer(step, should, self.before, after)
        if step.script in TELL_FREEZE and want[1:]:
            want[1] = near(want[1], is_[-1], self.slack_ms)
        if want[0] == "LOST":
            want[1] = int(near(want[1], is_[1], self.slack_ms))
        if step.script == "read_compare":
            want[1] = near(want[1], is_[1], self.slack_ms * 1000)
        if is_ != want and should.answer != [REFUSED]:
            yield f"answered {is_}, not {want}"

    def _repetition(self, step: Step, should: Expected) -> Iterator[str]:
        """The same call with its stamp, at once: at most a permit may have grown."""
        was, live = self.was and self.was.live, should.live
        if step != self.last or "stamp" not in step.given or not (was and live):
            return
        for uid in was.pods.keys() | live.pods.keys():
            if not _is_repeated(was.pods.get(uid), live.pods.get(uid)):
                yield f"the second time {uid} went from {was.pods.get(uid)} to {live.pods.get(uid)}"

    def _journal(self, step: Step, should: Expected, after: Keyspace) -> Iterator[str]:
        was = self.was.live if self.was else None
        epoch = self.before.live.meta.get("epoch", "")
        want = sorted(entries(step, was, should, epoch=epoch))
        is_ = sorted(told(entry, context) for entry, context in after.journal)
        if is_ != want:
            yield f"the journal got {is_}, not {want}"

    def _versions(self, step: Step, should: Expected, after: Keyspace) -> Iterator[str]:
        if should.live is None or step.script == "drift":
            return
        word = should.answer[0] if should.answer else ""
        if word == "MIGRATED":  # the epoch has another name, and no row says other than before
            return
        before = self.before.building if word == "PUBLISHED" else self.before.live
        forgotten = to_be_forgotten(step, before) if word == "TRIMMED" else set()
        yield from wrong_versions(before, after.live, forgotten)


def _is_repeated(before: PodRow | None, after: PodRow | None) -> bool:
    if before is None or after is None:
        return before is after
    is_there = (before.stage, before.node) == (after.stage, after.node)
    return is_there and before.amount.at_most(after.amount) == before.amount


def _whole_answer(step: Step, should: Expected, before: Keyspace, after: Keyspace) -> list[Any]:
    """The model's answer, with what it leaves out."""
    live, now = should.live or Found(), str(should.now)
    word, *rest = should.answer or ["UNBUILT"]
    rest = [now] if word == "ASKED" else rest
    match word:
        case "UNBUILT" | "NEWER" | "OLDER" if step.script == "check_ledger":
            return [word, now, "", 0 if word == "UNBUILT" else should.schema, 0, ""]
        case "SETTLED" | "SUSPECT" if step.script == "check_ledger":
            version, settle_ms = int(after.live.meta["version"]), int(live.meta["settle_ms"])
            return [word, now, live.meta["epoch"], version, settle_ms, after.live.meta["replid"]]
        case "LAPSED":
            uids = [PodUid(str(uid)) for uid in rest]
            return [word, now, *(item for u in uids for item in (u, live.pods[u].encode()))]
        case "POD":
            uid = PodUid(str(rest[0]))
            return [word, uid, live.pods[uid].encode(), live.blobs.get(uid, b"").decode()]
        case "UNLISTED":
            untimed = live.pods.keys() - live.deadlines.keys()
            looked_for = map(PodUid, str(step.given["uids"]).split())
            return [word, 0, 0, *(live.pods[uid].encode() for uid in looked_for if uid in untimed)]
        case "TRIMMED":
            return [word, len(to_be_forgotten(step, before.live))]
        case "PORTION" | "ROWS" | "BINDINGS":
            return [word, *_everything(step, after)]
    return [str(word), *rest]


def _everything(step: Step, after: Keyspace) -> Iterator[Any]:
    """What a read of many rows tells, its word apart."""
    match step.script:
        case "scan_books":
            rows = after.live.pods.items()
            yield from ("0", *(item for uid, row in rows for item in (uid, row.encode())))
        case "read_rows":
            yield from _rows(step, after.live)
        case _:
            yield from (item for pair in after.bindings.items() for item in pair)


def _rows(step: Step, live: Found) -> Iterator[Any]:
    """As `read_rows` gives them; a step asks for none of the journal."""
    nodes, uids, names = (
        str(step.given[what]).split() for what in ("node_names", "uids", "pod_names")
    )
    node_rows: list[tuple[Any, ...]] = []
    for name in map(NodeName, nodes):
        row = live.nodes.get(name)
        node_rows.append((name, row.encode() if row else "", live.changes.get(name, "")))
    pod_rows: list[tuple[Any, ...]] = []
    for uid in map(PodUid, uids):
        pod = live.pods.get(uid)
        moments = (live.deadlines.get(uid, ""), live.gone.get(uid, ""))
        pod_rows.append((uid, pod.encode() if pod else "", *moments))
    pointed = [(name, live.names.get(PodName(name), "")) for name in names]
    meta = (live.meta.get(name) for name in ("epoch", "version", "nodes", "pods"))
    yield [None if value is None else value.encode() for value in meta]
    yield len(live.nodes)
    yield len(live.pods)
    yield []
    for rows in (node_rows, pod_rows, pointed):
        yield [str(item).encode() for row in rows for item in row]


def _keyspace(step: Step, should: Expected, after: Keyspace) -> Iterator[str]:
    yield from _differ("lease", should.lease, after.lease)
    if should.lease and after.lease_ms <= 0:
        yield f"the lease never ends: {after.lease_ms}"
    yield from _differ("bindings", should.bindings, after.bindings)
    yield from _differ("freezes", should.freezes, after.freezes)
    yield from _differ("compare", should.compare, after.compare)
    aside = {name: after.live.meta[name] for name in ASIDE & after.live.meta.keys()}
    yield from _differ("aside", should.aside, aside)
    if should.live:
        is_whole = step.script != "drift"
        yield from _books("live", should.live, after.live, is_whole=is_whole)
    elif "epoch" in after.live.meta and step.script not in HAPPENINGS:
        yield "there are no books, yet they have an epoch"
    if should.building:
        is_whole = step.script != "load_row"  # sums come with the nodes' rows, before the pods
        yield from _books("building", should.building, after.building, is_whole=is_whole)
    elif after.building_entries or after.building != Found():
        yield f"beside the books is left {after.building}"


def _books(side: str, should: Found, is_: Found, *, is_whole: bool) -> Iterator[str]:
    for part in ("pods", "names", "blobs", "deadlines", "gone"):
        yield from _differ(f"{side} {part}", getattr(should, part), getattr(is_, part))
    yield from _differ(f"{side} meta", should.meta, {k: is_.meta.get(k) for k in should.meta})
    if is_whole:
        yield from _differ(f"{side} nodes", should.nodes, unversioned(is_, should.meta["epoch"]))
        yield from (f"{side}: {breach}" for breach in breaches(is_))


def _differ(what: str, should: dict[Any, Any], is_: dict[Any, Any]) -> Iterator[str]:
    if should != is_:
        for key in sorted(should.keys() | is_.keys(), key=str):
            if should.get(key) != is_.get(key):
                yield f"{what} {key}:\n    is     {is_.get(key)}\n    not    {should.get(key)}"
