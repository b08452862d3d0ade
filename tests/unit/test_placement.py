"""Many nodes judged at once come out as each would by itself."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoscale_enforcer.api.placement import Placement
from autoscale_enforcer.api.standings import Standings
from autoscale_enforcer.ledger.freezes import EVERYWHERE
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.rows import NodeRow, PodRow, Stage
from autoscale_enforcer.policy.fit import Reason
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
def test_judgements_are_those_of_each_node_by_itself(
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

    found = placement.judge(NAMES, Standings(mirror).verdicts(placement.charge))

    each = {name: placement.why_not(name) for name in NAMES}
    assert found.refused == {name: reason for name, reason in each.items() if reason}
    assert list(found.passed) == [name for name, reason in each.items() if not reason]


def judged(
    rows: dict[NodeName, NodeRow], pod: PodRow, *, frozen: str | None = None
) -> dict[NodeName, Reason]:
    mirror, _ = mirror_that_hears(full(rows, frozen=frozen))
    placement = Placement.of(mirror, sent=pod, known=pod)
    found = placement.judge(NAMES[:2], Standings(mirror).verdicts(placement.charge))
    assert set(found.passed) == set(NAMES[:2]) - set(found.refused)
    return dict(found.refused)


ROOMY = dict.fromkeys(NAMES[:2], NodeRow(cap_cpu=6, cap_mem=6))


def test_one_frozen_node_is_refused_and_the_others_are_not() -> None:
    pod = PodRow(name="default/a", cpu=1, mem=1)

    assert judged(ROOMY, pod, frozen=NAMES[1]) == {NAMES[1]: Reason.FROZEN}


def test_what_the_pod_holds_does_not_stand_in_its_own_way() -> None:
    full_up = dict.fromkeys(NAMES[:2], NodeRow(cap_cpu=6, cap_mem=6, reserved_cpu=6))
    pod = PodRow(name="default/a", node=NAMES[0], stage=Stage.HELD, cpu=2, charge_cpu=2)

    assert judged(full_up, pod) == {NAMES[1]: Reason.CPU}
    assert judged(full_up, pod, frozen=NAMES[0]) == {NAMES[1]: Reason.CPU}
