"""The scripts on a real server and the model in `tests/reference`, driven by the same steps.

After each step: the same answer, the same rows, names, deadlines and counts, one journal entry for
each change, and every invariant, by `verify` and by the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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
from tests.property.judging import Judge, expected
from tests.property.server_side import Scripted
from tests.property.steps import WEIGHTED, Step, Story, rebuild
from tests.support.servers import Server

ENOUGH = 50
"""How often each outcome word of each script must have been seen in the long run."""

CHOICES = st.randoms(use_true_random=False)
Words = Counter[tuple[str, str]]


class LedgerMachine(RuleBasedStateMachine):
    """One story, told to both."""

    def __init__(self, scripted: Scripted, words: Words) -> None:
        super().__init__()
        self.scripted, self.story = scripted, Story()
        self.judge = Judge(words=words)
        scripted.client.flushall()

    def do(self, step: Step) -> None:
        step = self.judge.fill(step)
        note(repr(step))
        should = expected(self.story.tell(step), self.story)
        answer, after = self.scripted.do(step, self.story.now)
        complaints = self.judge.complaints(step, should, answer, after)
        assert not complaints, "\n".join(complaints)

    @initialize(choices=CHOICES)
    def build(self, choices: Random) -> None:
        for step in rebuild(choices, self.story):
            self.do(step)

    @rule(kind=st.sampled_from(WEIGHTED), choices=CHOICES)
    def happen(self, kind: str, choices: Random) -> None:
        for step in self.story.next(kind, choices):
            self.do(step)

    @invariant()
    def the_books_hold(self) -> None:
        assert not self.story.books.breaches()


class RealClockMachine(LedgerMachine):
    """The same with the scripts' very text, which lives by the server's clock."""

    def __init__(self, scripted: Scripted, words: Words) -> None:
        super().__init__(scripted, words)
        self.judge.slack_ms = 2_000

    def do(self, step: Step) -> None:
        self.story.now = self.scripted.now() - step.after
        super().do(step)


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    """A client of a server that may be told that it has been promoted."""
    with Server("valkey", "--enable-debug-command", "yes") as server, server.client() as client:
        yield client


def run(machine: type[LedgerMachine], scripted: Scripted, *, stories: int) -> Words:
    """Tell so many stories of up to 50 steps; the outcome words that were seen."""
    words: Words = Counter()
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: machine(scripted, words),
        settings=settings(
            max_examples=stories,
            stateful_step_count=50,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return words


@pytest.mark.timeout(240)
def test_scripts_do_what_the_model_does(client: redis.Redis) -> None:
    run(LedgerMachine, Scripted(client), stories=200)


@pytest.mark.timeout(120)
def test_scripts_do_what_the_model_does_by_the_servers_clock(client: redis.Redis) -> None:
    run(RealClockMachine, Scripted(client, load_scripts()), stories=20)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_scripts_do_what_the_model_does_in_every_outcome(
    client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted = Scripted(client)

    words = run(LedgerMachine, scripted, stories=2_000)

    seen = {
        (s.name, word): words[s.name, word] for s in scripted.scripts.values() for word in s.words
    }
    with capsys.disabled():
        print(
            "\n" + "\n".join(f"{count:7} {name:16} {word}" for (name, word), count in seen.items())
        )
    assert not {key: count for key, count in seen.items() if count < ENOUGH}
