"""Steps, and the story that they make, as the model has it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.reference.books import Books
from tests.reference.by_script import Answer, Arguments, run
from tests.reference.world import HAPPENINGS, World

MS = 1_000
START = 1_700_000_000_000 * MS


@dataclass(frozen=True, slots=True)
class Step:
    """One script run, or one of HAPPENINGS."""

    script: str
    given: Arguments = field(default_factory=dict)
    building: bool = False
    after: int = MS
    """How long after the step before, in microseconds."""


@dataclass(slots=True)
class Story:
    """What has happened so far, to the model."""

    world: World = field(default_factory=World)
    now: int = START
    told: list[Step] = field(default_factory=list)

    def tell(self, step: Step) -> Answer:
        """Let the step happen to the model; the answer that a script must give."""
        self.now += step.after
        self.told.append(step)
        if step.script in HAPPENINGS:
            self.world.happen(step.script)
        if step.script in (*HAPPENINGS, "read_changes"):
            return []
        return run(self.world, step.script, step.given, now=self.now, building=step.building)

    @property
    def books(self) -> Books:
        """The books; empty ones where there are none."""
        return self.world.live or Books(epoch="none")
