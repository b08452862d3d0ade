"""The scripts on a real server and the model in `tests/reference`, driven by the same steps.

After each step: the same answer, the same rows, names, deadlines and counts, one journal entry for
each change, and every invariant, by `verify` and by the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import pytest
import redis
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from autoscale_enforcer.ledger.scripts import load_scripts
from tests.property.builds import rebuild
from tests.property.expecting import expected
from tests.property.judging import Judge
from tests.property.server_side import Scripted
from tests.property.steps import WEIGHTED, next_steps
from tests.property.story import Step, Story
from tests.support.servers import Server

ENOUGH = 50
"""How often each outcome word of each script must have been seen in each half."""

SLACK_MS = 2_000
"""How much later than its step a script may run."""

CHOICES = st.randoms(use_true_random=False)
Words = Counter[tuple[str, str]]


class LedgerMachine(RuleBasedStateMachine):
    """One story, told to the model and to a server."""

    def __init__(self, scripted: Scripted, words: Words, *, by_server: bool) -> None:
        super().__init__()
        self.scripted, self.story, self.by_server = scripted, Story(), by_server
        self.judge = Judge(words=words, slack_ms=SLACK_MS if by_server else 0)
        scripted.reset()

    def do(self, step: Step) -> None:
        if not self.by_server:
            note(repr(step))
        else:
            self.story.now = self.scripted.now() - step.after
        should = expected(self.story.tell(step), self.story)
        step = self.judge.fill(step)
        answer, after = self.scripted.do(step, self.story.now)
        complaints = self.judge.complaints(step, should, answer, after)
        assert not complaints, "\n".join(complaints)

    @initialize(choices=CHOICES)
    def build(self, choices: Random) -> None:
        for step in rebuild(choices, self.story):
            self.do(step)

    @rule(kind=st.sampled_from(WEIGHTED), choices=CHOICES)
    def happen(self, kind: str, choices: Random) -> None:
        self.happen_once(kind, choices)

    def happen_once(self, kind: str, choices: Random) -> None:
        for step in next_steps(kind, choices, self.story):
            self.do(step)

    @invariant()
    def the_books_hold(self) -> None:
        assert not self.story.books.breaches()


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    """A client of a server that may be told that it has been promoted."""
    with Server("valkey", "--enable-debug-command", "yes") as server, server.client() as client:
        yield client


def run(scripted: Scripted, *, stories: int) -> Words:
    """Tell so many stories of up to 50 steps; the outcome words that were seen."""
    words: Words = Counter()
    run_state_machine_as_test(
        lambda: LedgerMachine(scripted, words, by_server=False),  # type: ignore[arg-type]
        settings=settings(
            max_examples=stories,
            stateful_step_count=50,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return words


@pytest.mark.timeout(240)
def test_scripts_do_what_the_model_does(client: redis.Redis) -> None:
    run(Scripted(client), stories=200)


def test_scripts_do_what_the_model_does_by_the_servers_clock(client: redis.Redis) -> None:
    """The scripts' very text: everywhere else a prelude tells them the time.

    Not told by hypothesis, which must be able to tell a story twice: a running clock forbids it.
    """
    scripted = Scripted(client, load_scripts())
    for seed in range(20):
        machine, choices = LedgerMachine(scripted, Counter(), by_server=True), Random(seed)
        for step in rebuild(choices, machine.story):
            machine.do(step)
        for _ in range(50):
            machine.happen_once(choices.choice(WEIGHTED), choices)
            machine.the_books_hold()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("half", ["first half", "second half"])
def test_scripts_do_what_the_model_does_in_every_outcome(
    client: redis.Redis, record_property: Callable[[str, object], None], half: str
) -> None:
    """Two thousand stories, in two halves for pytest's workers to share."""
    scripted = Scripted(client)

    seen = run(scripted, stories=1_000)

    words = [(script.name, word) for script in scripted.scripts.values() for word in script.words]
    table = [f"{seen[script, word]:7} {script:16} {word}" for script, word in sorted(words)]
    record_property("printed", "\n".join([f"outcome words, {half}", *table]))
    assert not [key for key in words if seen[key] < ENOUGH]
