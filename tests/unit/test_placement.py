"""Many nodes judged at once come out as each would by itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autoscale_enforcer.api.placement import Placement
from autoscale_enforcer.ledger.exchange import Call
from autoscale_enforcer.ledger.freezes import EVERYWHERE
from autoscale_enforcer.ledger.mirror import Mirror
from autoscale_enforcer.ledger.scripts import Script, load_scripts
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.rows import NodeRow, PodRow, Stage

NAMES = [NodeName(f"n{number}") for number in range(6)]
SMALL = st.integers(0, 6)

ROWS = st.builds(
    NodeRow,
    absent=st.sampled_from([0, 0, 0, 1]),
    cap_cpu=SMALL,
    cap_mem=SMALL,
    reserved_cpu=SMALL,
    reserved_mem=SMALL,
    ignored_cpu=st.sampled_from([0, 0, 1]),
    ignored_mem=st.sampled_from([0, 0, 1]),
    vms=st.sampled_from([0, 1]),
)


def pods(stage: Stage) -> st.SearchStrategy[PodRow]:
    return st.builds(
        PodRow,
        name=st.just("default/a"),
        node=st.just("-") if stage == Stage.PENDING else st.sampled_from(NAMES),
        stage=st.just(stage),
        rv=st.just("1"),
        broken=st.sampled_from([0, 0, 0, 1]),
        cpu=SMALL,
        mem=SMALL,
        charge_cpu=SMALL,
        charge_mem=SMALL,
    )


@dataclass
class Answering:
    """Stands in the pipeline's place: every look at the changes gets this answer."""

    answer: list[Any]

    def script(self, name: str) -> Script:
        return load_scripts()[name]

    async def run(self, call: Call) -> None:
        assert call.on_answer
        call.on_answer(self.answer)

    def redis_us(self) -> int:
        return 1_000_000


def mirror_of(
    rows: dict[NodeName, NodeRow], *, settles_at_ms: int, state: bytes, frozen: str | None
) -> Mirror:
    freezes = [frozen.encode(), b"1 "] if frozen else []
    pairs = [part for name, row in rows.items() for part in (name.encode(), row.encode().encode())]
    answer = ["FULL", b"e", 1, state, settles_at_ms, freezes, *pairs]
    mirror = Mirror(Answering(answer))  # type: ignore[arg-type]
    asyncio.run(mirror.refresh())
    return mirror


@given(
    rows=st.dictionaries(st.sampled_from(NAMES), ROWS),
    templates=st.dictionaries(st.sampled_from(NAMES), ROWS),
    sent=pods(Stage.PENDING),
    known=st.none() | st.sampled_from(list(Stage)).flatmap(pods),
    settles_at_ms=st.sampled_from([0, 2000]),
    state=st.sampled_from([b"settled", b"settled", b"suspect"]),
    frozen=st.sampled_from([None, None, NAMES[0], EVERYWHERE]),
)
def test_refusals_are_those_of_each_node_by_itself(
    rows: dict[NodeName, NodeRow],
    templates: dict[NodeName, NodeRow],
    sent: PodRow,
    known: PodRow | None,
    settles_at_ms: int,
    state: bytes,
    frozen: str | None,
) -> None:
    mirror = mirror_of(rows, settles_at_ms=settles_at_ms, state=state, frozen=frozen)
    placement = Placement.of(mirror, sent=sent, known=known, templates=templates)

    found = placement.refusals(NAMES)

    each = {name: placement.why_not(name) for name in NAMES}
    assert found == {name: reason for name, reason in each.items() if reason}
