"""What a step is about: pods, nodes, stamps, versions and amounts, few of each.

Collisions are what we are after, so most picks look at what the model holds.
"""

from __future__ import annotations

from random import Random

from autoscale_enforcer.model.facts import PodFact, VmFact
from autoscale_enforcer.model.ids import NodeName, PodName, PodUid
from autoscale_enforcer.model.resources import MAX_MEM_BYTES, NOTHING, Overcommit, Resources
from autoscale_enforcer.model.rows import NO_WORD, PodRow, Stage, said_row
from tests.property.story import MS, Step, Story
from tests.reference.books import ADDITIVE

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


def rarely(rng: Random, times: int) -> bool:
    """Once in so many times; not in the simplest story, to which hypothesis shrinks a failure."""
    return rng.randrange(times) == times - 1


def change(rng: Random, story: Story, script: str, **given: str | int | bytes) -> Step:
    """A call of a replica that knows the epoch, or (rarely) one that is over."""
    epoch = story.books.epoch if not rarely(rng, 20) else "stale"
    context = b"\x81\xa3why\xa1" + bytes([65 + rng.randrange(3)])
    return Step(script, {**given, "epoch": epoch, "most": MOST, "context": context})


def pick_uid(rng: Random, story: Story, *stages: Stage) -> PodUid:
    """Any pod, most often one in one of these stages."""
    books = story.books
    fitting = [uid for uid, row in books.pods.items() if row.stage in stages]
    if Stage.PENDING in stages:
        fresh = (PodUid(uid) for uid, name in PODS.items() if f"ns/{name}" not in books.names)
        fitting += [uid for uid in fresh if uid not in books.gone]
    if fitting and not rarely(rng, 8):
        return rng.choice(sorted(fitting))
    return PodUid(rng.choice(list(PODS)))


def pick_node(rng: Random, story: Story, uid: PodUid) -> NodeName:
    """Any node, often the one that the pod is on."""
    row = story.books.pods.get(uid)
    if row and row.holds and not rarely(rng, 3):
        return NodeName(row.node)
    return NodeName(rng.choice([*story.books.nodes, *NODES, "n4"]))


def pick_stamp(rng: Random, story: Story, row: PodRow | None) -> int:
    """Mostly now; else as the pod's own, a little older or newer."""
    if row and row.stamp and rarely(rng, 3):
        return row.stamp + rng.choice([0, 0, -1, 1])
    return story.now + rng.choice([0, 0, 0, -3 * MS])


def pick_version(rng: Random, known: str, step: int = 1) -> str:
    """A resourceVersion about as new as the one that is known; their lengths differ on purpose."""
    if rarely(rng, 20):
        return ""
    at = 8 if known == NO_WORD else int(known)
    return str(max(at + rng.choice([0, 0, step, step, 3, -1]), 1))


def pick_amount(rng: Random) -> Resources:
    return Resources(rng.choice(CPU), rng.choice(MEM))


def _vm(rng: Random, row: PodRow | None) -> VmFact:
    use = row.amount if row and rng.randrange(2) else pick_amount(rng)
    by_object = bool(row and row.vm_rv != NO_WORD) if not rarely(rng, 4) else rarely(rng, 3)
    return VmFact(
        name="vm",
        autoscaling=not rarely(rng, 5),
        use=use,
        minimum=NOTHING,
        maximum=rng.choice([Resources(4000, 2 * HUGE), Resources(2000, 3 * GIB)]),
        slot_bytes=GIB,
        approved=rng.choice([NOTHING, NOTHING, Resources(2000, 2 * GIB)]),
        overcommit=row.overcommit if row and not rarely(rng, 3) else rng.choice(OVERCOMMITS),
        from_vm_object=by_object,
        vm_resource_version=pick_version(rng, row.vm_rv if row else NO_WORD) if by_object else "",
    )


def _fact(rng: Random, story: Story, uid: PodUid, node: NodeName | None) -> PodFact:
    books = story.books
    name = PODS[uid]
    row = books.pods.get(uid)
    holder = books.names.get(PodName(f"ns/{name}"))
    versioned = row or (books.pods[holder] if holder else None)
    kind = rng.choice(["vm"] * 8 + ["plain"] * 3 + ["broken"])
    if row and not rarely(rng, 6):
        kind = "broken" if row.broken and not row.scaled else "vm" if row.vm else "plain"
    return PodFact(
        uid=uid,
        namespace="ns",
        name=name,
        resource_version=pick_version(rng, versioned.rv if versioned else NO_WORD),
        node=node,
        finished=rarely(rng, 15),
        deleting=rarely(rng, 2 if row and row.is_tentative else 5),
        requests=pick_amount(rng),
        vm=_vm(rng, row) if kind == "vm" else None,
        problem="bad" if kind == "broken" else "",
        migration_source=rarely(rng, 6),
        labels={"n": str(rng.randrange(3))},
    )


def _said(rng: Random, fact: PodFact, row: PodRow | None) -> PodRow:
    ignored = bool(row.ignored) if row and not rarely(rng, 8) else rarely(rng, 12)
    return said_row(fact, ignored=ignored)


def said_text(rng: Random, story: Story, uid: PodUid, unsaid: int) -> str:
    """What a caller says of the pod; nothing once in `unsaid`."""
    if rarely(rng, unsaid if uid in story.books.pods else 3 * unsaid):
        return ""
    fact = _fact(rng, story, uid, None)
    return _said(rng, fact, story.books.pods.get(uid)).encode()


def maimed(rng: Random, said: str) -> str:
    """The row as it is sent; once in a while by a caller of another release, with a field less."""
    return said if not rarely(rng, 60) else said.rpartition(" ")[0]


def leading_token(rng: Random, story: Story) -> str:
    return story.books.token if not rarely(rng, 8) else "stale"


def any_token(rng: Random, story: Story) -> str:
    """The leader's, one that is over, or none at all: a caller that only adds."""
    return ADDITIVE if rarely(rng, 4) else leading_token(rng, story)


def pod_fact(rng: Random, story: Story, uid: PodUid, node: NodeName | None, *, token: str) -> Step:
    fact = _fact(rng, story, uid, node)
    approved = fact.vm.approved if fact.vm else NOTHING
    return change(
        rng,
        story,
        "put_pod",
        uid=uid,
        said=maimed(rng, _said(rng, fact, story.books.pods.get(uid)).encode()),
        finished=int(fact.finished),
        deleting=int(fact.deleting),
        approved_cpu=approved.cpu,
        approved_mem=approved.mem,
        blob=rng.choice([b"", b"podA", b"podB"]),
        token=token,
    )


def node_fact(rng: Random, story: Story, name: NodeName, *, token: str) -> Step:
    known = story.books.nodes.get(name)
    uid = rng.choice([f"{name}-a", f"{name}-b", NO_WORD])
    if known and not known.absent and not rarely(rng, 6):
        uid = known.uid
    elif not rarely(rng, 3):
        uid = next((gone for gone in story.books.gone if gone.startswith(name)), uid)
    capacity = rng.choice(CAPACITIES)
    return change(
        rng,
        story,
        "put_node",
        name=name,
        uid=uid,
        rv=pick_version(rng, known.rv if known else NO_WORD) or NO_WORD,
        config=pick_version(rng, known.config if known else NO_WORD, step=0) or NO_WORD,
        cap_cpu=capacity.cpu,
        cap_mem=capacity.mem,
        blob=b"node" + bytes([rng.randrange(3)]),
        token=token,
    )
