"""One thing that happens to a ledger, and how the next one is chosen.

Choices are made with a `random.Random` and the model's state, so that hypothesis, which brings a
Random of its own that it can shrink, and a plain seed give the same kind of story. Names and
amounts are few: collisions are what we are after.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from autoscale_enforcer.model.facts import PodFact, VmFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import MAX_MEM_BYTES, NOTHING, Overcommit, Resources
from autoscale_enforcer.model.rows import NO_WORD, NodeRow, PodRow, Stage, said_row
from tests.reference.books import ADDITIVE, Books
from tests.reference.world import HAPPENINGS, Answer, Arguments, World

MS = 1_000
SECOND = 1_000 * MS
START = 1_700_000_000 * SECOND

NODES = ("n1", "n2", "n3")
PODS = {f"{name}{number}": name for name in "abc" for number in "123"}
"""UID -> name: names are used again."""

HOLD_MS = 5_000
SETTLE_MS = 15_000
MOST = 100_000

GIB = 1 << 30
HUGE = MAX_MEM_BYTES - 1
"""Where a double's digits end is where sums go wrong first."""

CPU = (0, 250, 500, 1000, 1000, 1500, 2000, 3333)
MEM = (0, GIB, GIB, 2 * GIB, 3 * GIB, GIB + 1, HUGE)
CAPACITIES = (
    *(Resources(1000, 2 * GIB), Resources(4000, 4 * GIB), Resources(4000, 8 * GIB)),
    *(Resources(8000, 2 * HUGE), Resources(9000, 3 * HUGE), Resources(3000, GIB)),
)
OVERCOMMITS = (Overcommit(), Overcommit(), Overcommit(1500, 2000), Overcommit(3333, 100))


@dataclass(frozen=True, slots=True)
class Step:
    """One script run, or one of HAPPENINGS."""

    script: str
    given: Arguments = field(default_factory=dict)
    building: bool = False
    after: int = MS
    """How long after the step before, in microseconds."""


@dataclass(slots=True)
class Story:
    """What has happened so far, to the model."""

    world: World = field(default_factory=World)
    now: int = START
    told: list[Step] = field(default_factory=list)

    def tell(self, step: Step) -> Answer:
        """Let the step happen to the model; the answer that a script must give."""
        self.now += step.after
        self.told.append(step)
        if step.script in HAPPENINGS:
            self.world.happen(step.script)
        if step.script in (*HAPPENINGS, "read_changes"):
            return []
        return self.world.run(step.script, step.given, now=self.now, building=step.building)

    @property
    def books(self) -> Books:
        """The books; empty ones where there are none."""
        return self.world.live or Books(epoch="none")

    def next(self, kind: str, rng: Random) -> Iterator[Step]:
        """Steps of that kind, each to be told before the next is asked for."""
        return KINDS[kind][1](rng, self)


def _change(rng: Random, story: Story, script: str, **given: str | int | bytes) -> Step:
    """A call of a replica that knows the epoch, or (rarely) one that is over."""
    epoch = story.books.epoch if rng.randrange(20) else "stale"
    context = b"\x81\xa3why\xa1" + bytes([65 + rng.randrange(3)])
    return Step(script, {**given, "epoch": epoch, "most": MOST, "context": context})


def _uid(rng: Random, story: Story, *stages: Stage) -> PodUid:
    """Any pod, most often one in one of these stages."""
    books = story.books
    fitting = [uid for uid, row in books.pods.items() if row.stage in stages]
    if Stage.PENDING in stages:
        fresh = (PodUid(uid) for uid, name in PODS.items() if f"ns/{name}" not in books.names)
        fitting += [uid for uid in fresh if uid not in books.gone]
    if fitting and rng.randrange(8):
        return rng.choice(sorted(fitting))
    return PodUid(rng.choice(list(PODS)))


def _node(rng: Random, story: Story, uid: PodUid) -> NodeName:
    """Any node, often the one that the pod is on."""
    row = story.books.pods.get(uid)
    if row and row.holds and rng.randrange(3):
        return NodeName(row.node)
    return NodeName(rng.choice([*story.books.nodes, *NODES, "n4"]))


def _stamp(rng: Random, story: Story, row: PodRow | None) -> int:
    """Mostly now; else as the pod's own, a little older or newer."""
    if row and row.stamp and not rng.randrange(3):
        return row.stamp + rng.choice([0, 0, -1, 1])
    return story.now + rng.choice([0, 0, 0, -3 * MS])


def _version(rng: Random, known: str, step: int = 1) -> str:
    """A resourceVersion about as new as the one that is known; their lengths differ on purpose."""
    if not rng.randrange(20):
        return ""
    at = 8 if known == NO_WORD else int(known)
    return str(max(at + rng.choice([0, 0, step, step, 3, -1]), 1))


def _amount(rng: Random) -> Resources:
    return Resources(rng.choice(CPU), rng.choice(MEM))


def _vm(rng: Random, row: PodRow | None) -> VmFact:
    use = row.amount if row and rng.randrange(2) else _amount(rng)
    by_object = bool(row and row.vm_rv != NO_WORD) if rng.randrange(4) else rng.randrange(3) == 0
    return VmFact(
        name="vm",
        autoscaling=bool(rng.randrange(5)),
        use=use,
        minimum=NOTHING,
        maximum=rng.choice([Resources(4000, 2 * HUGE), Resources(2000, 3 * GIB)]),
        slot_bytes=GIB,
        approved=rng.choice([NOTHING, NOTHING, Resources(2000, 2 * GIB)]),
        overcommit=row.overcommit if row and rng.randrange(3) else rng.choice(OVERCOMMITS),
        from_vm_object=by_object,
        vm_resource_version=_version(rng, row.vm_rv if row else NO_WORD) if by_object else "",
    )


def _fact(rng: Random, story: Story, uid: PodUid, node: NodeName | None) -> PodFact:
    books = story.books
    name = PODS[uid]
    row = books.pods.get(uid)
    holder = books.names.get(PodName(f"ns/{name}"))
    versioned = row or (books.pods[holder] if holder else None)
    kind = rng.choice(["vm"] * 8 + ["plain"] * 3 + ["broken"])
    if row and rng.randrange(6):
        kind = "broken" if row.broken and not row.scaled else "vm" if row.vm else "plain"
    return PodFact(
        uid=uid,
        namespace="ns",
        name=name,
        resource_version=_version(rng, versioned.rv if versioned else NO_WORD),
        node=node,
        finished=not rng.randrange(15),
        deleting=not rng.randrange(5),
        requests=_amount(rng),
        vm=_vm(rng, row) if kind == "vm" else None,
        problem="bad" if kind == "broken" else "",
        migration_source=not rng.randrange(6),
        labels={"n": str(rng.randrange(3))},
    )


def _said(rng: Random, fact: PodFact, row: PodRow | None) -> PodRow:
    ignored = bool(row.ignored) if row and rng.randrange(8) else not rng.randrange(12)
    return said_row(fact, ignored=ignored)


def _said_text(rng: Random, story: Story, uid: PodUid, unsaid: int) -> str:
    """What a caller says of the pod; nothing once in `unsaid`."""
    if not rng.randrange(unsaid if uid in story.books.pods else 3 * unsaid):
        return ""
    fact = _fact(rng, story, uid, None)
    return _text(rng, _said(rng, fact, story.books.pods.get(uid)))


def _text(rng: Random, said: PodRow) -> str:
    """The row as it is sent; once in a while by a caller of another release, with a field less."""
    return said.encode() if rng.randrange(60) else said.encode().rsplit(" ", 1)[0]


def _reserve(rng: Random, story: Story) -> Iterator[Step]:
    yield _reserve_to(rng, story, rng.choice(["held", "held", "binding"]))


def _bind(rng: Random, story: Story) -> Iterator[Step]:
    """A bind from beginning to end, or as far as it comes."""
    begin = _reserve_to(rng, story, "binding")
    yield begin
    uid, node, stamp = begin.given["uid"], begin.given["node"], begin.given["stamp"]
    if rng.randrange(2):
        yield _change(rng, story, "confirm_bind", uid=uid, node=node, said=begin.given["said"])
    elif rng.randrange(2):
        yield _change(rng, story, "abandon_bind", uid=uid, node=node, stamp=stamp)


def _reserve_to(rng: Random, story: Story, to: str) -> Step:
    uid = _uid(rng, story, Stage.PENDING, Stage.HELD, Stage.BINDING)
    return _change(
        rng,
        story,
        "reserve_pod",
        uid=uid,
        node=_node(rng, story, uid),
        said=_said_text(rng, story, uid, 3),
        to=to,
        stamp=_stamp(rng, story, story.books.pods.get(uid)),
        hold_ms=HOLD_MS,
    )


def _release(rng: Random, story: Story) -> Iterator[Step]:
    uid = _uid(rng, story, Stage.HELD, Stage.BINDING)
    row = story.books.pods.get(uid)
    scripts = ["unreserve_pod", "abandon_bind"]
    if row and row.is_tentative and rng.randrange(6):
        scripts = ["unreserve_pod" if row.stage == Stage.HELD else "abandon_bind"]
    script, stamp = rng.choice(scripts), _stamp(rng, story, row)
    yield _change(rng, story, script, uid=uid, node=_node(rng, story, uid), stamp=stamp)


def _confirm(rng: Random, story: Story) -> Iterator[Step]:
    uid = _uid(rng, story, Stage.HELD, Stage.BINDING)
    said = _said_text(rng, story, uid, 2)
    yield _change(rng, story, "confirm_bind", uid=uid, node=_node(rng, story, uid), said=said)


def _request(rng: Random, story: Story) -> Iterator[Step]:
    scaled = [uid for uid, row in story.books.pods.items() if row.scaled]
    uid = rng.choice(sorted(scaled)) if scaled and rng.randrange(6) else rng.choice(list(PODS))
    row = story.books.pods.get(PodUid(uid))
    held = row.amount if row else NOTHING
    asked = Resources(
        max(rng.choice([held.cpu, *CPU, 4000]), 1), max(rng.choice([held.mem, *MEM]), 1)
    )
    last = rng.choice([NOTHING, NOTHING, Resources(2000, 2 * GIB), Resources(3333, HUGE)])
    yield _change(
        rng,
        story,
        "request_permit",
        name=f"ns/{PODS[PodUid(uid)]}",
        cpu=asked.cpu,
        mem=asked.mem,
        factor_cpu=rng.choice([250, 1000, 1]),
        factor_mem=rng.choice([GIB, GIB, 7]),
        last_cpu=last.cpu,
        last_mem=last.mem,
        stamp=_stamp(rng, story, row),
    )


def _put_pod(rng: Random, story: Story) -> Iterator[Step]:
    uid = PodUid(rng.choice(list(PODS)))
    row = story.books.pods.get(uid)
    is_bound = row.stage in (Stage.BINDING, Stage.BOUND) if row else False
    node = _node(rng, story, uid) if rng.randrange(4) < 1 + 2 * is_bound else None
    yield _pod_fact(rng, story, uid, node, token=_token(rng, story))


def _pod_fact(rng: Random, story: Story, uid: PodUid, node: NodeName | None, *, token: str) -> Step:
    fact = _fact(rng, story, uid, node)
    approved = fact.vm.approved if fact.vm else NOTHING
    return _change(
        rng,
        story,
        "put_pod",
        uid=uid,
        said=_text(rng, _said(rng, fact, story.books.pods.get(uid))),
        finished=int(fact.finished),
        deleting=int(fact.deleting),
        approved_cpu=approved.cpu,
        approved_mem=approved.mem,
        blob=b"pod" + bytes([65 + rng.randrange(3)]),
        token=token,
    )


def _delete_pod(rng: Random, story: Story) -> Iterator[Step]:
    uid = _uid(rng, story, *Stage)
    token = _token(rng, story) or "stale"
    yield _change(rng, story, "delete_pod", uid=uid, name=f"ns/{PODS[uid]}", token=token)


def _put_node(rng: Random, story: Story) -> Iterator[Step]:
    yield _node_fact(rng, story, NodeName(rng.choice(NODES)), token=_token(rng, story))


def _node_fact(rng: Random, story: Story, name: NodeName, *, token: str) -> Step:
    known = story.books.nodes.get(name)
    uid = rng.choice([f"{name}-a", f"{name}-b", NO_WORD])
    if known and not known.absent and rng.randrange(6):
        uid = known.uid
    elif rng.randrange(3):
        uid = next((gone for gone in story.books.gone if gone.startswith(name)), uid)
    capacity = rng.choice(CAPACITIES)
    return _change(
        rng,
        story,
        "put_node",
        name=name,
        uid=uid,
        rv=_version(rng, known.rv if known else NO_WORD) or NO_WORD,
        config=_version(rng, known.config if known else NO_WORD, step=0) or NO_WORD,
        cap_cpu=capacity.cpu,
        cap_mem=capacity.mem,
        blob=b"node" + bytes([rng.randrange(3)]),
        token=token,
    )


def _delete_node(rng: Random, story: Story) -> Iterator[Step]:
    name = NodeName(rng.choice(NODES))
    known = story.books.nodes.get(name)
    uid = (
        known.uid
        if known and not known.absent and rng.randrange(5)
        else rng.choice([NO_WORD, f"{name}-a"])
    )
    token = _token(rng, story) or "stale"
    yield _change(rng, story, "delete_node", name=name, uid=uid, token=token)


def _sweep(rng: Random, story: Story) -> Iterator[Step]:
    after = rng.choice([0, HOLD_MS, HOLD_MS * 2, SETTLE_MS, 601_000]) * MS
    yield Step("find_lapsed", {"limit": rng.choice([1, 10])}, after=after)


def _look(rng: Random, story: Story) -> Iterator[Step]:
    yield _check(story)


def _check(story: Story) -> Step:
    epoch = f"epoch{len(story.told)}"
    return Step("check_ledger", {"new_epoch": epoch, "watch": 1, "most": MOST})


def _promotion(rng: Random, story: Story) -> Iterator[Step]:
    yield Step("promotion")
    yield _check(story)
    if rng.randrange(3):
        yield from KINDS[rng.choice(["reserve", "request", "put_pod"])][1](rng, story)
        yield from _settle(rng, story)


def _settle(rng: Random, story: Story) -> Iterator[Step]:
    epoch = story.books.epoch if rng.randrange(12) else "stale"
    given = {"epoch": epoch, "token": _leader(rng, story), "most": MOST}
    yield Step("settle_ledger", {**given, "settle_after_ms": rng.choice([0, SETTLE_MS, SETTLE_MS])})


def _leader(rng: Random, story: Story) -> str:
    return story.books.token if rng.randrange(8) else "stale"


def _token(rng: Random, story: Story) -> str:
    """The leader's, one that is over, or none at all: a caller that only adds."""
    return ADDITIVE if not rng.randrange(4) else _leader(rng, story)


def _lease(rng: Random, story: Story) -> Iterator[Step]:
    holder = rng.choice(["r1", "r2"])
    token = story.world.lease[1] if story.world.lease and rng.randrange(2) else f"token-{holder}"
    take = Step("take_lease", {"holder": holder, "token": token, "lease_ms": 3_600_000})
    yield rng.choice([take, take, Step("drop_lease", {"token": token}), Step("lease_end")])


def _build(rng: Random, story: Story) -> Iterator[Step]:
    """One step of a build, in whatever order; mostly nothing comes of it."""
    token = story.world.lease[1] if story.world.lease and rng.randrange(4) else "stale"
    kind = rng.choice(["begin", "fact", "fact", "publish"])
    if kind == "begin":
        yield Step("begin_build", {"token": token, "epoch": f"epoch{len(story.told)}"})
    elif kind == "fact":
        yield from _fact_beside(rng, story)
    else:
        yield _publish(rng, token)


def _fact_beside(rng: Random, story: Story) -> Iterator[Step]:
    """A fact for the books that are being built."""
    uid, name = PodUid(rng.choice(list(PODS))), NodeName(rng.choice(NODES))
    building = story.world.building
    beside = Story(World(live=building), story.now) if building else story
    token = building.token if building and rng.randrange(12) else "stale"
    if rng.randrange(3):
        step = _pod_fact(rng, beside, uid, rng.choice([None, name]), token=token)
    else:
        step = _node_fact(rng, beside, name, token=token)
    yield replace(step, building=True)


def _import(rng: Random, story: Story) -> Iterator[Step]:
    """The books as they are, put in their own place row by row; some rows come twice."""
    books = story.books.copy()
    rows = [
        *(("node", name, books.node_row(name)) for name in books.nodes),
        *(("pod", uid, row) for uid, row in books.pods.items()),
    ]
    token = yield from _begin_build(story)
    for version, (kind, name, row) in enumerate(rows, start=1):
        text = replace(row, version=version) if isinstance(row, NodeRow) else row
        given: Arguments = {"kind": kind, "id": name, "row": text.encode()}
        given |= {"token": token, "blob": books.blobs.get(name, b"")}
        yield Step("load_row", given)
        if not rng.randrange(4):
            yield Step("load_row", given | {"token": rng.choice([token, "stale"])})
    yield _publish(rng, token)


def _begin_build(story: Story) -> Generator[Step, None, str]:
    token = f"token{len(story.told)}"
    yield Step("lease_end")
    yield Step("take_lease", {"holder": "r", "token": token, "lease_ms": 3_600_000})
    yield Step("begin_build", {"token": token, "epoch": f"epoch{len(story.told)}"})
    return token


def _publish(rng: Random, token: str) -> Step:
    return Step(
        "publish_build",
        {
            "token": token,
            "state": rng.choice(["settled"] * 5 + ["suspect"]),
            "settle_after_ms": rng.choice([0, 0, SETTLE_MS]),
            "watch": 1,
            "most": MOST,
        },
    )


def rebuild(rng: Random, story: Story) -> Iterator[Step]:
    """A whole build, from the lease on."""
    token = yield from _begin_build(story)
    for name in NODES:
        beside = Story(World(live=story.world.building), story.now)
        yield replace(_node_fact(rng, beside, NodeName(name), token=token), building=True)
    for _ in range(rng.randrange(5)):
        yield from _fact_beside(rng, story)
    yield _publish(rng, token)


def _loss(rng: Random, story: Story) -> Iterator[Step]:
    """The books, or a row of them, are lost; somebody looks, somebody acts, they are built anew."""
    what = "row_loss" if story.books.pods and rng.randrange(2) else "loss"
    yield Step(what)
    yield _check(story)
    yield from KINDS[rng.choice(["reserve", "release", "confirm", "request", "settle"])][1](
        rng, story
    )
    yield from _read_changes(rng, story)
    yield from rebuild(rng, story)


def _read_pod(rng: Random, story: Story) -> Iterator[Step]:
    uid = rng.choice([*PODS, "nobody", "nobody"])
    known = {"uid": uid, "name": ""}
    yield Step(
        "read_pod", rng.choice([known, known, {"uid": "", "name": f"ns/{rng.choice('abcd')}"}])
    )


def _read_changes(rng: Random, story: Story) -> Iterator[Step]:
    """From the version that the reader of the test has reached, which the runner fills in."""
    yield Step("read_changes", {"epoch": "", "since": 0})


def _note_binding(rng: Random, story: Story) -> Iterator[Step]:
    yield Step("note_binding", {"uid": rng.choice(list(PODS)), "node": rng.choice(NODES)})
    yield Step("read_bindings")


def _repeat(rng: Random, story: Story) -> Iterator[Step]:
    """An earlier call once more, word for word: sent again, or late."""
    told = [s for s in story.told[-12:] if "context" in s.given and not s.building]
    if told:
        yield rng.choice([told[-1], rng.choice(told)])


Chooser = Callable[[Random, Story], Iterator[Step]]

KINDS: dict[str, tuple[int, Chooser]] = {
    "reserve": (24, _reserve),
    "bind": (16, _bind),
    "release": (16, _release),
    "confirm": (5, _confirm),
    "request": (20, _request),
    "put_pod": (18, _put_pod),
    "delete_pod": (3, _delete_pod),
    "put_node": (9, _put_node),
    "delete_node": (4, _delete_node),
    "repeat": (12, _repeat),
    "sweep": (4, _sweep),
    "look": (1, _look),
    "promotion": (1, _promotion),
    "settle": (4, _settle),
    "lease": (2, _lease),
    "build": (3, _build),
    "loss": (1, _loss),
    "read_pod": (3, _read_pod),
    "read_changes": (4, _read_changes),
    "note_binding": (1, _note_binding),
    "import": (1, _import),
}
"""What may happen next: how often, and how it is chosen."""

WEIGHTED = [kind for kind, (weight, _) in KINDS.items() for _ in range(weight)]
