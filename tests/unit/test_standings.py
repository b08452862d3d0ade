"""What is kept of a charge is what would be found now, whatever has changed since."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscale_enforcer.api import standings as kept
from autoscale_enforcer.api.standings import Standings
from autoscale_enforcer.config.scheduler_config import (
    NodeConfig,
    NodeOverride,
    SchedulerConfig,
    ScoreShape,
)
from autoscale_enforcer.ledger import mirror as following
from autoscale_enforcer.model.ids import NodeName
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.model.rows import NodeRow
from autoscale_enforcer.policy.fit import Reason
from tests.support.mirror import Changes, delta, full, mirror_that_hears

NAMES = [NodeName(f"n{number}") for number in range(4)]
SMALL = st.integers(0, 6)
ROWS = st.builds(
    NodeRow,
    absent=st.sampled_from([0, 0, 0, 1]),
    cap_cpu=SMALL,
    cap_mem=SMALL,
    reserved_cpu=SMALL,
    reserved_mem=SMALL,
    ignored_cpu=st.sampled_from([0, 0, 1]),
)
CONFIGS = [
    SchedulerConfig(),
    SchedulerConfig(nodes=NodeConfig(scoring=ScoreShape(score_peak=0.3))),
    SchedulerConfig(
        overrides=(NodeOverride(("n[01]",), NodeConfig(scoring=ScoreShape(score_peak=0.0))),)
    ),
]
CHARGES = [Resources(cpu, mem) for cpu in (0, 2, 5) for mem in (0, 3)]
LIVING = st.dictionaries(st.sampled_from(NAMES), ROWS)
HEARD = st.one_of(
    st.builds(delta, st.dictionaries(st.sampled_from(NAMES), st.none() | ROWS)),
    st.builds(full, LIVING),
)
ASKED = st.tuples(st.sampled_from(CHARGES), st.sampled_from(CONFIGS))


@given(LIVING, st.lists(st.one_of(HEARD, ASKED), max_size=12), st.sampled_from([1, 3, 100]))
def test_what_is_kept_is_what_would_be_found_now(
    rows: dict[NodeName, NodeRow],
    steps: list[Changes | tuple[Resources, SchedulerConfig]],
    changes_kept: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(following, "CHANGES_KEPT", changes_kept)
        patch.setattr(kept, "KEPT", 2)
        mirror, hear = mirror_that_hears(full(rows))
        standings = Standings(mirror)

        for step in [*steps, *((charge, CONFIGS[0]) for charge in CHARGES)]:
            if isinstance(step, list):
                hear(step)
                continue
            charge, config = step
            fresh = Standings(mirror)
            assert standings.verdicts(charge) == fresh.verdicts(charge)
            assert standings.scores(charge, config) == fresh.scores(charge, config)
            assert standings.verdicts(charge).keys() == mirror.rooms.keys()


def test_a_node_that_grows_beyond_all_others_lowers_their_scores() -> None:
    node = NodeRow(cap_cpu=10, cap_mem=10)
    mirror, hear = mirror_that_hears(full({NAMES[0]: node, NAMES[1]: node}))
    standings = Standings(mirror)
    before = dict(standings.scores(Resources(8, 8), CONFIGS[0]))

    hear(delta({NAMES[1]: replace(node, cap_cpu=20, cap_mem=20)}))

    assert before[NAMES[0]] == 10
    assert standings.scores(Resources(8, 8), CONFIGS[0])[NAMES[0]] == 5


def test_a_node_that_has_left_says_nothing() -> None:
    full_one = NodeRow(cap_cpu=10, cap_mem=10, reserved_cpu=10)
    mirror, hear = mirror_that_hears(full({NAMES[0]: full_one, NAMES[1]: full_one}))
    standings = Standings(mirror)
    before = dict(standings.verdicts(Resources(1, 1)))

    hear(delta({NAMES[0]: None}))

    assert before == {NAMES[0]: Reason.CPU, NAMES[1]: Reason.CPU}
    assert standings.verdicts(Resources(1, 1)) == {NAMES[1]: Reason.CPU}


def test_only_nodes_that_have_changed_are_looked_at_again() -> None:
    node = NodeRow(cap_cpu=10, cap_mem=10)
    mirror, hear = mirror_that_hears(full(dict.fromkeys(NAMES, node)))
    before = mirror.revision

    hear(delta({NAMES[0]: None}))
    hear(delta({NAMES[1]: replace(node, reserved_cpu=1), NAMES[0]: node}))

    assert mirror.changed_since(before) == {NAMES[0], NAMES[1]}
    assert mirror.changed_since(mirror.revision) == set()
