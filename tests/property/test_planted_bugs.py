"""Every bug that is planted in the scripts is caught by the comparison with the model.

The machine's own steps, chosen by plain seeds and told to the model once, are replayed against
each mutant: hypothesis itself would be too slow for hundreds of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import pytest
import redis

from autoscale_enforcer.ledger.scripts import load_scripts
from tests.property.builds import rebuild
from tests.property.expecting import Expected, expected
from tests.property.judging import Judge
from tests.property.mutants import Mutant, Nursery, all_mutants
from tests.property.no_difference import NO_DIFFERENCE
from tests.property.server_side import Scripted, with_fake_clock
from tests.property.steps import WEIGHTED, next_steps
from tests.property.story import Step, Story
from tests.support.servers import Server

STORIES = 500
"""How many stories a mutant has to survive to count as not caught."""

STORIES_WITHOUT_A_DIFFERENCE = 10
"""The same for those that are said to make no difference: enough to find an obvious lie."""

STEPS = 60

TO_BE_FILLED = ("read_changes", "recount_node")
"""Steps that say what only the server could have told their caller."""

PARTS = 4
"""The long test is cut in so many, for pytest's workers to share."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One step of a story, and what must come of it."""

    step: Step
    should: Expected


@cache
def scenes(seed: int) -> list[Scene]:
    """The story that the seed tells, as the model has it."""
    choices, story = random.Random(seed), Story()
    told: list[Scene] = []

    def tell(steps: Iterator[Step]) -> None:
        told.extend(Scene(step, expected(story.tell(step), story)) for step in steps)

    tell(rebuild(choices, story))
    while len(told) < STEPS:
        tell(next_steps(choices.choice(WEIGHTED), choices, story))
    return told


class Laboratory:
    """A server whose scripts may be infected."""

    def __init__(self, client: redis.Redis, nursery: Nursery) -> None:
        self.client, self.nursery = client, nursery
        self.healthy = {name: with_fake_clock(script) for name, script in load_scripts().items()}

    def catches(self, mutant: Mutant) -> bool:
        """Some story shows the bug."""
        infected = {n: with_fake_clock(s) for n, s in self.nursery.scripts(mutant).items()}
        scripted = Scripted(self.client, self.healthy | infected)
        is_listed = mutant.title in NO_DIFFERENCE
        stories = STORIES_WITHOUT_A_DIFFERENCE if is_listed else STORIES
        return any(self.shows(scripted, seed) for seed in range(stories))

    def shows(self, scripted: Scripted, seed: int) -> bool:
        scripted.reset()
        judge = Judge()
        try:
            return any(self._complaints(scripted, judge, part) for part in _parts(scenes(seed)))
        except UNREADABLE:
            return True

    @staticmethod
    def _complaints(scripted: Scripted, judge: Judge, part: list[Scene]) -> bool:
        timed = [(judge.fill(scene.step), scene.should.now) for scene in part]
        done = zip(part, timed, scripted.do_all(timed), strict=True)
        return any(
            judge.complaints(step, scene.should, answer, after)
            for scene, (step, _), (answer, after) in done
        )


UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ZeroDivisionError)
"""What reading back raises where a bug has left something that is no ledger."""


def _parts(story: list[Scene]) -> Iterator[list[Scene]]:
    """As few parts as possible: some must have seen what came before."""
    starts = [at for at, scene in enumerate(story) if scene.step.script in TO_BE_FILLED]
    for start, end in pairwise([0, *starts, len(story)]):
        yield story[start:end]


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    folder = tmp_path_factory.mktemp("mutants")
    with Server("valkey", "--enable-debug-command", "yes") as server, server.client() as client:
        yield Laboratory(client, Nursery(folder))


def test_scripts_without_a_planted_bug_are_not_accused(laboratory: Laboratory) -> None:
    scripted = Scripted(laboratory.client, laboratory.healthy)

    assert not [seed for seed in range(STORIES // 10) if laboratory.shows(scripted, seed)]


def test_some_planted_bugs_are_caught(laboratory: Laboratory) -> None:
    mutants = [mutant for mutant in all_mutants() if mutant.title not in NO_DIFFERENCE]

    some = random.sample(mutants, 30)  # pytest-randomly's seed, so that it can be repeated

    assert not [mutant.title for mutant in some if not laboratory.catches(mutant)]


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_planted_bug_is_caught(laboratory: Laboratory, part: int) -> None:
    mutants = all_mutants()[part::PARTS]

    uncaught = {mutant.title for mutant in mutants if not laboratory.catches(mutant)}

    assert uncaught == {mutant.title for mutant in mutants} & NO_DIFFERENCE.keys()


def test_no_difference_lists_only_what_can_be_planted() -> None:
    assert NO_DIFFERENCE.keys() <= {mutant.title for mutant in all_mutants()}
