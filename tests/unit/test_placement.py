"""What the charge alone says of a node is what the node by itself would say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscale_enforcer.api.placement import Placement
from autoscale_enforcer.api.standings import Standings
from autoscale_enforcer.ledger.freezes import EVERYWHERE
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.rows import NodeRow, PodRow, Stage
from tests.support.mirror import full, mirror_that_hears

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


@given(
    rows=st.dictionaries(st.sampled_from(NAMES), ROWS),
    templates=st.dictionaries(st.sampled_from(NAMES), ROWS),
    sent=pods(Stage.PENDING),
    known=st.none() | st.sampled_from(list(Stage)).flatmap(pods),
    settles_at_ms=st.sampled_from([0, 2000]),
    state=st.sampled_from([b"settled", b"settled", b"suspect"]),
    frozen=st.sampled_from([None, None, NAMES[0], EVERYWHERE]),
)
def test_where_the_charge_alone_decides_it_says_what_the_node_by_itself_does(
    rows: dict[NodeName, NodeRow],
    templates: dict[NodeName, NodeRow],
    sent: PodRow,
    known: PodRow | None,
    settles_at_ms: int,
    state: bytes,
    frozen: str | None,
) -> None:
    answer = full(rows, settles_at_ms=settles_at_ms, state=state, frozen=frozen)
    mirror, _ = mirror_that_hears(answer)
    placement = replace(Placement.of(mirror, sent=sent, known=known), templates=templates)

    said, apart = Standings(mirror).verdicts(placement.charge), placement.apart(NAMES)

    decided = [name for name in NAMES if name in said and name not in apart]
    assert {name: said[name] for name in decided} == {
        name: placement.why_not(name) for name in decided
    }


def apart(pod: PodRow, *, frozen: str | None = None, state: bytes = b"settled") -> set[NodeName]:
    mirror, _ = mirror_that_hears(full(ROOMY, frozen=frozen, state=state))
    return Placement.of(mirror, sent=pod, known=pod).apart(NAMES[:2])


ROOMY = dict.fromkeys(NAMES[:2], NodeRow(cap_cpu=6, cap_mem=6))
NEW = PodRow(name="default/a", cpu=1, mem=1)


def test_a_new_pods_charge_decides_everywhere() -> None:
    assert apart(NEW) == set()


def test_one_frozen_node_leaves_the_others_to_the_charge() -> None:
    assert apart(NEW, frozen=NAMES[1]) == {NAMES[1]}


def test_what_a_pod_holds_matters_where_it_holds_it() -> None:
    held = replace(NEW, node=NAMES[0], stage=Stage.HELD)

    assert apart(held) == {NAMES[0]}


@pytest.mark.parametrize(
    ("pod", "frozen", "state"),
    [
        (NEW, EVERYWHERE, b"settled"),
        (NEW, None, b"suspect"),
        (replace(NEW, broken=1), None, b"settled"),
        (replace(NEW, node=NAMES[0], stage=Stage.BOUND), None, b"settled"),
    ],
    ids=["frozen", "unsettled", "broken", "bound"],
)
def test_sometimes_no_charge_decides_anything(
    pod: PodRow, frozen: str | None, state: bytes
) -> None:
    assert apart(pod, frozen=frozen, state=state) == set(NAMES[:2])
