"""Steps around the books: the lease, builds, imports."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from random import Random

from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.rows import NodeRow
from tests.property.picks import MOST, NODES, PODS, SETTLE_MS, node_fact, pod_fact, rarely
from tests.property.story import Step, Story
from tests.reference.by_script import Arguments
from tests.reference.world import World


def check_ledger(story: Story) -> Step:
    epoch = f"epoch{len(story.told)}"
    given: Arguments = {"new_epoch": epoch, "watch": 1, "most": MOST, "mark": 0, "schema": 1}
    return Step("check_ledger", given)


def lease_step(rng: Random, story: Story) -> Iterator[Step]:
    holder = rng.choice(["r1", "r2"])
    token = story.world.lease[1] if story.world.lease and rng.randrange(2) else f"token-{holder}"
    take = Step("take_lease", {"holder": holder, "token": token, "lease_ms": 3_600_000})
    yield rng.choice([take, take, Step("drop_lease", {"token": token}), Step("lease_end")])


def build_step(rng: Random, story: Story) -> Iterator[Step]:
    """One step of a build, in whatever order; mostly nothing comes of it."""
    token = story.world.lease[1] if story.world.lease and not rarely(rng, 4) else "stale"
    kind = rng.choice(["begin", "fact", "fact", "list", "publish"])
    if kind == "begin":
        yield Step("begin_build", {"token": token, "epoch": f"epoch{len(story.told)}"})
    elif kind == "fact":
        yield from _fact_beside(rng, story)
    elif kind == "list":
        yield from _list_beside(rng, story)
    else:
        yield _publish(rng, token)


def _fact_beside(rng: Random, story: Story) -> Iterator[Step]:
    """A fact for the books that are being built."""
    uid, name = PodUid(rng.choice(list(PODS))), NodeName(rng.choice(NODES))
    building = story.world.building
    beside = Story(World(live=building), story.now) if building else story
    token = building.token if building and not rarely(rng, 12) else "stale"
    if not rarely(rng, 3):
        step = pod_fact(rng, beside, uid, rng.choice([None, name]), token=token)
    else:
        step = node_fact(rng, beside, name, token=token)
    yield replace(step, building=True)


def _list_beside(rng: Random, story: Story) -> Iterator[Step]:
    """Some pods of a first list for the books that are being built."""
    building = story.world.building
    beside = Story(World(live=building), story.now) if building else story
    lines, blobs = [], b""
    for uid in rng.sample(list(PODS), rng.randrange(1, 4)):
        step = pod_fact(
            rng, beside, PodUid(uid), rng.choice([None, *map(NodeName, NODES)]), token=""
        )
        a = step.given
        blob = a["blob"] if isinstance(a["blob"], bytes) else b""
        words = (uid, a["approved_cpu"], a["approved_mem"], len(blob), a["said"])
        lines.append(" ".join(map(str, words)))
        blobs += blob
    given: Arguments = {"rows": "\n".join(lines), "blobs": blobs}
    given["epoch"] = building.epoch if building and not rarely(rng, 12) else "stale"
    given["token"] = building.token if building and not rarely(rng, 12) else "stale"
    yield Step("load_pods", given)


def import_books(rng: Random, story: Story) -> Iterator[Step]:
    """The books as they are, put in their own place row by row; some rows come twice."""
    books = story.books.copy()
    rows = [
        *(("node", name, books.node_row(name)) for name in books.nodes),
        *(("pod", uid, row) for uid, row in books.pods.items()),
    ]
    token = yield from _begin_build(rng, story)
    for version, (kind, name, row) in enumerate(rows, start=1):
        # Not in the order of their versions, as a hash gives them.
        text = replace(row, version=version ^ 1) if isinstance(row, NodeRow) else row
        given: Arguments = {"kind": kind, "id": name, "row": text.encode()}
        given |= {"token": token, "blob": books.blobs.get(name, b"")}
        if rarely(rng, 4):
            yield Step("load_row", given | {"token": rng.choice([token, "stale"])})
        yield Step("load_row", given)
    yield _publish(rng, token)


def _begin_build(rng: Random, story: Story) -> Generator[Step, None, str]:
    """A build from its lease on; once in a while it has to be begun again."""
    token = f"token{len(story.told)}"
    yield Step("lease_end")
    yield Step("take_lease", {"holder": "r", "token": token, "lease_ms": 3_600_000})
    for is_last in (not rarely(rng, 4), True):
        yield Step("begin_build", {"token": token, "epoch": f"epoch{len(story.told)}"})
        if is_last:
            break
        yield from _fact_beside(rng, story)
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
    token = yield from _begin_build(rng, story)
    for name in NODES:
        beside = Story(World(live=story.world.building), story.now)
        yield replace(node_fact(rng, beside, NodeName(name), token=token), building=True)
    for _ in range(rng.randrange(5)):
        yield from rng.choice([_fact_beside, _list_beside])(rng, story)
    yield _publish(rng, token)
