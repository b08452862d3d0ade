"""What the model says must be in the keys, in the form in which a server's keys are read back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoscale_enforcer.ledger.verify import Books as Found
from tests.property.server_side import Keyspace
from tests.property.story import Story
from tests.reference.books import Books
from tests.reference.by_script import Answer
from tests.reference.world import SCHEMA, World


@dataclass(frozen=True, slots=True)
class Expected:
    """What must be in the keys once the step is done; made once, compared with any server."""

    answer: Answer
    now: int
    live: Found | None
    building: Found | None
    lease: dict[str, str]
    bindings: dict[str, str]
    aside: dict[str, str]
    """What `meta` keeps of other things than the books."""
    schema: int
    freezes: dict[str, str]
    compare: dict[str, str]


def expected(answer: Answer, story: Story) -> Expected:
    """What the model says after the step that it has just answered."""
    world = story.world
    lease = dict(zip(("holder", "token"), world.lease, strict=True)) if world.lease else {}
    return Expected(
        answer,
        story.now,
        _as_found(world.live, world.schema) if world.live else None,
        _as_found(world.building) if world.building else None,
        lease,
        {str(uid): str(node) for uid, node in world.bindings.items()},
        _aside(world),
        world.schema,
        dict(world.freezes),
        dict(world.compare),
    )


def _aside(world: World) -> dict[str, str]:
    version, text = world.config or ("", "")
    aside = {"cluster": world.owner, "config_version": version, "config": text}
    return {name: value for name, value in aside.items() if value}


def _as_found(books: Books, schema: int = SCHEMA) -> Found:
    return Found(
        meta={
            "epoch": books.epoch,
            "fence": books.token,
            "state": "suspect" if books.is_suspect else "settled",
            "settle_ms": str(books.settle_ms),
            "nodes": str(len(books.nodes)),
            "pods": str(len(books.pods)),
            "schema": str(schema),
        },
        nodes={name: books.node_row(name) for name in books.nodes},
        pods=dict(books.pods),
        names=dict(books.names),
        blobs=dict(books.blobs),
        deadlines={uid: row.deadline for uid, row in books.pods.items() if row.is_tentative},
        gone=dict(books.gone),
    )


def aligned(should: Expected, is_: Keyspace, slack_ms: int) -> Expected:
    """`should` with the server's moments in the place of its own, where they are close enough."""
    live = should.live and _moments_of(should.live, is_.live, slack_ms)
    building = should.building and _moments_of(should.building, is_.building, slack_ms)
    freezes = {
        node: near(note, is_.freezes.get(node), slack_ms) for node, note in should.freezes.items()
    }
    asked = should.compare.get("asked")
    compare = dict(should.compare)
    if asked:
        compare["asked"] = near(asked, is_.compare.get("asked"), slack_ms * 1000)
    return replace(should, live=live, building=building, freezes=freezes, compare=compare)


def near(mine: object, its: object, slack: int) -> str:
    """The server's text in the place of ours, where the moments before the words are close."""
    (my_moment, *mine_too), (moment, *words) = (str(text).split(" ", 1) for text in (mine, its))
    close = moment.isdigit() and mine_too == words and abs(int(my_moment) - int(moment)) <= slack
    return str(its if close else mine)


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
