"""What may happen to a ledger next, and how it is chosen.

Choices are made with a `random.Random` and the model's state, so that hypothesis, which brings a
Random of its own that it can shrink, and a plain seed give the same kind of story. Names and
amounts are few: collisions are what we are after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from random import Random

from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.model.rows import NO_WORD, NodeRow, PodRow, Stage
from tests.property.builds import build_step, check_ledger, import_books, lease_step, rebuild
from tests.property.picks import (
    CPU,
    GIB,
    HOLD_MS,
    HUGE,
    MEM,
    MOST,
    NODES,
    PODS,
    SETTLE_MS,
    any_token,
    change,
    leading_token,
    maimed,
    node_fact,
    pick_node,
    pick_stamp,
    pick_uid,
    pod_fact,
    rarely,
    said_text,
)
from tests.property.story import MS, Step, Story
from tests.reference.by_script import Arguments


def _reserve(rng: Random, story: Story) -> Iterator[Step]:
    yield _reserve_to(rng, story, rng.choice(["held", "held", "binding"]))


def _bind(rng: Random, story: Story) -> Iterator[Step]:
    """A bind from beginning to end, or as far as it comes."""
    begin = _reserve_to(rng, story, "binding")
    yield begin
    uid, node, stamp = begin.given["uid"], begin.given["node"], begin.given["stamp"]
    if rng.randrange(2):
        said = said_text(rng, story, PodUid(str(uid)), 2)
        yield change(rng, story, "confirm_bind", uid=uid, node=node, said=said)
    elif rng.randrange(2):
        yield change(rng, story, "abandon_bind", uid=uid, node=node, stamp=stamp)


def _reserve_to(rng: Random, story: Story, to: str) -> Step:
    uid = pick_uid(rng, story, Stage.PENDING, Stage.HELD, Stage.BINDING)
    node, said = pick_node(rng, story, uid), maimed(rng, said_text(rng, story, uid, 3))
    stamp = pick_stamp(rng, story, story.books.pods.get(uid))
    return _reserve_at(rng, story, uid, node, said, to=to, stamp=stamp)


def _reserve_at(
    rng: Random, story: Story, uid: PodUid, node: NodeName, said: str, *, to: str, stamp: int
) -> Step:
    given: Arguments = {"uid": uid, "node": node, "said": said, "to": to, "stamp": stamp}
    return change(rng, story, "reserve_pod", **given, hold_ms=HOLD_MS)


def _release(rng: Random, story: Story) -> Iterator[Step]:
    uid = pick_uid(rng, story, Stage.HELD, Stage.BINDING)
    row = story.books.pods.get(uid)
    scripts = ["unreserve_pod", "abandon_bind"]
    if row and row.is_tentative and not rarely(rng, 6):
        scripts = ["unreserve_pod" if row.stage == Stage.HELD else "abandon_bind"]
    script, stamp = rng.choice(scripts), pick_stamp(rng, story, row)
    if row and row.is_tentative and rarely(rng, 8):
        stamp = row.stamp - 1  # before the hold was made or renewed
    yield change(rng, story, script, uid=uid, node=pick_node(rng, story, uid), stamp=stamp)


def _confirm(rng: Random, story: Story) -> Iterator[Step]:
    uid = pick_uid(rng, story, Stage.HELD, Stage.BINDING)
    said = said_text(rng, story, uid, 2)
    yield change(rng, story, "confirm_bind", uid=uid, node=pick_node(rng, story, uid), said=said)


def _request(rng: Random, story: Story) -> Iterator[Step]:
    scaled = [uid for uid, row in story.books.pods.items() if row.scaled]
    uid = rng.choice(sorted(scaled)) if scaled and not rarely(rng, 6) else rng.choice(list(PODS))
    row = story.books.pods.get(PodUid(uid))
    held = row.amount if row else NOTHING
    asked = Resources(
        max(rng.choice([held.cpu, *CPU, 4000]), 1), max(rng.choice([held.mem, *MEM]), 1)
    )
    last = rng.choice([NOTHING, NOTHING, Resources(2000, 2 * GIB), Resources(3333, HUGE)])
    yield change(
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
        stamp=pick_stamp(rng, story, row),
    )


def _put_pod(rng: Random, story: Story) -> Iterator[Step]:
    uid = pick_uid(rng, story, *Stage)
    row = story.books.pods.get(uid)
    is_bound = row.stage in (Stage.BINDING, Stage.BOUND) if row else False
    node = pick_node(rng, story, uid) if rng.randrange(4) < 1 + 2 * is_bound else None
    yield pod_fact(rng, story, uid, node, token=any_token(rng, story))


def _delete_pod(rng: Random, story: Story) -> Iterator[Step]:
    yield _deletion(rng, story, pick_uid(rng, story, *Stage))


def _deletion(rng: Random, story: Story, uid: PodUid) -> Step:
    name, token = f"ns/{PODS[uid]}", leading_token(rng, story)
    return change(rng, story, "delete_pod", uid=uid, name=name, token=token)


def _put_node(rng: Random, story: Story) -> Iterator[Step]:
    yield node_fact(rng, story, NodeName(rng.choice(NODES)), token=any_token(rng, story))


def _delete_node(rng: Random, story: Story) -> Iterator[Step]:
    yield _node_deletion(rng, story, NodeName(rng.choice(NODES)))


def _node_deletion(rng: Random, story: Story, name: NodeName) -> Step:
    node, uid = story.books.nodes.get(name), rng.choice([NO_WORD, f"{name}-a"])
    if node and not node.absent and not rarely(rng, 5):
        uid = node.uid
    token = leading_token(rng, story)
    return change(rng, story, "delete_node", name=name, uid=uid, token=token)


def _desert(rng: Random, story: Story) -> Iterator[Step]:
    """A node leaves, and one by one the pods on it; then it is forgotten."""
    yield _reserve_to(rng, story, "held")
    nodes = sorted({row.node for row in story.books.pods.values() if row.holds})
    if not nodes:
        return
    node = NodeName(rng.choice(nodes))
    yield _node_deletion(rng, story, node)
    if rng.randrange(2):
        yield from _read_changes(rng, story)
    for uid in [uid for uid, _ in story.books.pods_on(node)]:
        yield _departure(rng, story, uid)
    if rng.randrange(2):
        yield from _trim(rng, story)


def _departure(rng: Random, story: Story, uid: PodUid) -> Step:
    """Something that takes the pod from its node."""
    row = story.books.pods[uid]
    elsewhere = NodeName(rng.choice(NODES))
    away = rng.choice(["delete", "confirm", "fact", "ours", "ours", "ours"])
    if row.stage == Stage.HELD and rng.randrange(2):
        return _reserve_at(rng, story, uid, elsewhere, "", to="held", stamp=story.now)
    if away == "confirm":
        return change(rng, story, "confirm_bind", uid=uid, node=elsewhere, said="")
    if away == "fact":
        return pod_fact(rng, story, uid, elsewhere, token=story.books.token)
    if away == "delete" or not row.is_tentative:
        return _deletion(rng, story, uid)
    script = "unreserve_pod" if row.stage == Stage.HELD else "abandon_bind"
    return change(rng, story, script, uid=uid, node=row.node, stamp=story.now)


def _sweep(rng: Random, story: Story) -> Iterator[Step]:
    after = rng.choice([0, HOLD_MS, HOLD_MS * 2, SETTLE_MS, 601_000]) * MS
    yield Step("find_lapsed", {"limit": rng.choice([1, 10])}, after=after)


def _look(rng: Random, story: Story) -> Iterator[Step]:
    yield check_ledger(story)


def _promotion(rng: Random, story: Story) -> Iterator[Step]:
    yield Step("promotion")
    yield check_ledger(story)
    if not rarely(rng, 3):
        yield from next_steps(rng.choice(["reserve", "request", "put_pod"]), rng, story)
        yield from _settle(rng, story)
        yield from _request(rng, story)
        yield from _request(rng, story)


def _settle(rng: Random, story: Story) -> Iterator[Step]:
    given: Arguments = {
        "epoch": story.books.epoch if not rarely(rng, 12) else "stale",
        "token": leading_token(rng, story),
        "settle_after_ms": rng.choice([0, SETTLE_MS, SETTLE_MS]),
        "most": MOST,
    }
    yield Step("settle_ledger", given)


def _loss(rng: Random, story: Story) -> Iterator[Step]:
    """The books, or a row of them, are lost; somebody looks, somebody acts, they are built anew."""
    if rarely(rng, 3):
        yield Step("promotion")
    if rng.randrange(2):
        yield _lose(rng, story)
    else:
        yield Step("row_loss" if story.books.pods and rng.randrange(2) else "loss")
    yield check_ledger(story)
    yield check_ledger(story)
    kind = rng.choice(["reserve", "release", "confirm", "request", "settle"])
    yield from next_steps(kind, rng, story)
    yield from _read_changes(rng, story)
    for _ in range(2):
        yield _lose(rng, story)
    yield from rebuild(rng, story)


def _lose(rng: Random, story: Story) -> Step:
    """A leader gives the books up, or somebody who thinks that it leads."""
    token = story.world.lease[1] if story.world.lease and not rarely(rng, 4) else "stale"
    return Step("lose_books", {"token": token, "most": MOST, "context": b"why"})


def _read_pod(rng: Random, story: Story) -> Iterator[Step]:
    by_name: Arguments = {"uid": "", "name": f"ns/{rng.choice('abcd')}"}
    uid = rng.choice([*PODS, "nobody", *story.books.gone])
    yield Step("read_pod", by_name if rarely(rng, 3) else {"uid": uid, "name": ""})


def _read_changes(rng: Random, story: Story) -> Iterator[Step]:
    """From the version that the reader of the test has reached, which the runner fills in."""
    yield Step("read_changes", {"epoch": "", "since": 0})


def _trim(rng: Random, story: Story) -> Iterator[Step]:
    """Removed nodes are forgotten, `before` so many versions behind the newest, as yet unknown."""
    given: Arguments = {"token": leading_token(rng, story), "before": rng.choice([0, 0, 1])}
    after = rng.choice([MS, MS, 601_000 * MS])
    yield Step("trim_changes", given | {"limit": rng.choice([1, 100])}, after=after)
    yield from _read_changes(rng, story)


def _aside(rng: Random, story: Story) -> Iterator[Step]:
    """What lies beside the books in the same keys."""
    match rng.choice(["claim", "config", "scan", "binding", "loss"]):
        case "claim":
            for _ in range(2):
                yield Step("claim_ledger", {"cluster": rng.choice(["mine", "yours"])})
        case "config":
            for _ in range(2):
                yield Step(
                    "put_config", {"version": rng.choice(["9", "10", "11"]), "text": "config"}
                )
            yield Step("read_config")
        case "loss":
            yield Step("note_loss", {"loss": "dropped", "told": "an-id 7", "most": MOST})
        case "scan":
            yield Step("read_config")
            yield Step("scan_books", {"part": "pods", "cursor": "0", "count": 100})
            names = " ".join(f"default/{uid}" for uid in PODS)
            asked: Arguments = {"node_names": " ".join(NODES), "uids": " ".join(PODS)}
            none: Arguments = {"since": "9999999999999-0", "entries": 1}
            yield Step("read_rows", asked | none | {"pod_names": names})
            yield Step("find_unlisted", asked)
        case _:
            yield Step("note_binding", {"uid": rng.choice(list(PODS)), "node": rng.choice(NODES)})
            yield Step("read_bindings")


def _freeze(rng: Random, story: Story) -> Iterator[Step]:
    """Grants are stopped, somebody wants one all the same, and mostly they are let go on."""
    node = rng.choice(["*", *NODES, "n4"])
    yield _order(rng, "freeze_grants", node)
    if not rng.randrange(3):
        yield _order(rng, "freeze_grants", node)
    for _ in range(rng.randrange(1, 4)):
        yield from rng.choice([_reserve, _request, _request])(rng, story)
    if not rng.randrange(3):
        yield from _read_changes(rng, story)
    for frozen in [*story.world.freezes, *(["n1"] if rarely(rng, 3) else [])]:
        if not rarely(rng, 5):
            yield _order(rng, "thaw_grants", frozen)


def _order(rng: Random, script: str, node: str) -> Step:
    words: Arguments = {"most": MOST, "context": b"why" + bytes([65 + rng.randrange(3)])}
    return Step(script, {"node": node, "dry": int(rarely(rng, 4)), **words})


def _compare(rng: Random, story: Story) -> Iterator[Step]:
    """A compare is asked for, and somebody who leads, or does not, answers."""
    if rng.randrange(2):
        yield Step("ask_compare", {"most": MOST, "context": b"why"})
    yield Step("read_compare")
    token = story.world.lease[1] if story.world.lease and not rarely(rng, 4) else "stale"
    asked = story.world.compare.get("asked", "0")
    given: Arguments = {"token": token, "asked": asked, "replica": rng.choice(["r1", "r2"])}
    yield Step("note_compared", given | {"mended": rng.randrange(9)})
    yield Step("read_compare")


def _leftover(rng: Random, story: Story) -> Iterator[Step]:
    """What a pod holds that is gone."""
    yield change(rng, story, "release_leftover", uid=pick_uid(rng, story, *Stage))


def _recount(rng: Random, story: Story) -> Iterator[Step]:
    """A node's sums are held against its pods, rarely with the right words, and once they drift."""
    uids = " ".join([*PODS, "nobody"])
    name = NodeName(rng.choice([*NODES, "nowhere"]))
    given: Arguments = {"name": name, "version": rng.choice([0, 0, 1]), "uids": uids}
    yield change(rng, story, "recount_node", **given, token=any_token(rng, story))
    if story.world.live and story.world.live.nodes:
        yield Step("drift")
        right: Arguments = {"epoch": story.books.epoch, "token": story.books.token}
        words: Arguments = {"most": MOST, "context": b"why"}
        given |= {"name": min(story.books.nodes), "version": 0}
        yield Step("recount_node", given | right | words)


def _upgrade(rng: Random, story: Story) -> Iterator[Step]:
    """Rows of an older release are found and migrated, or of a newer one, which are left alone."""
    if not rng.randrange(4):
        yield Step("newer")
        yield check_ledger(story)
        yield Step("newer")
        return
    if story.world.live is None:
        yield _migration(story, 0)
        return
    yield Step("older")
    yield check_ledger(story)
    yield _migration(story, rng.choice([0, 0, 1]), fits=bool(rng.randrange(3)))
    yield _migration(story, 0)
    yield _migration(story, 0)
    yield check_ledger(story)
    if story.books.epoch == "none":
        yield from rebuild(rng, story)


def _migration(story: Story, schema: int, *, fits: bool = True) -> Step:
    nodes = " ".join(field.name for field in fields(NodeRow))
    pods = " ".join(field.name for field in fields(PodRow))
    given: Arguments = {
        "from": schema,
        "to": schema + 1,
        "node_fields": nodes if fits else f"{nodes} other",
        "node_wanted": nodes,
        "pod_fields": pods.removesuffix(" stamp"),
        "pod_wanted": f"{pods}=0",
        "new_epoch": f"epoch{len(story.told)}",
        "most": MOST,
    }
    return Step("migrate_ledger", given)


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
    "desert": (3, _desert),
    "repeat": (12, _repeat),
    "sweep": (4, _sweep),
    "look": (1, _look),
    "promotion": (1, _promotion),
    "settle": (4, _settle),
    "recount": (3, _recount),
    "lease": (3, lease_step),
    "build": (5, build_step),
    "loss": (1, _loss),
    "read_pod": (3, _read_pod),
    "read_changes": (4, _read_changes),
    "trim": (2, _trim),
    "aside": (4, _aside),
    "import": (1, import_books),
    "freeze": (4, _freeze),
    "upgrade": (2, _upgrade),
    "compare": (2, _compare),
    "leftover": (5, _leftover),
}
"""What may happen next: how often, and how it is chosen."""

WEIGHTED = [kind for kind, (weight, _) in KINDS.items() for _ in range(weight)]


def next_steps(kind: str, rng: Random, story: Story) -> Iterator[Step]:
    """Steps of that kind, each to be told before the next is asked for."""
    return KINDS[kind][1](rng, story)
