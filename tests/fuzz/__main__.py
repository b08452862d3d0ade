"""`python -m tests.fuzz [--requests N] [--seed N]`: exit code 1 where something is wrong."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter

from tests.fuzz.caller import Found
from tests.fuzz.campaign import Outcome, campaign
from tests.fuzz.config import read_nonsense

MORE_MEMORY = 64 << 20
SHOWN = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    sys.setrecursionlimit(10_000)  # documents nested deeply within others of their kind are copied
    say(f"seed {given.seed}")
    refused, taken = read_nonsense(given.requests // 20, given.seed)
    say(f"config reader: {refused} refused, {taken} taken")
    began = time.monotonic()

    def on_part(found: Found) -> None:
        say(f"{sum(found.statuses.values())} after {time.monotonic() - began:.0f} s")

    outcome = asyncio.run(campaign(given.requests, given.seed, on_part=on_part))
    for line in lines(outcome):
        say(line)
    is_well = not outcome.found.wrong and not outcome.breaches and outcome.grown < MORE_MEMORY
    return 0 if is_well else 1


def lines(outcome: Outcome) -> list[str]:
    """The table, and what is wrong."""
    statuses = outcome.found.statuses
    doors = sorted({door for door, _ in statuses})
    by_status = Counter[str]()
    for (_, status), number in statuses.items():
        by_status[status] += number
    told = [f"{'status':>8}" + "".join(f"{door:>12}" for door in (*doors, "all"))]
    for status, number in sorted(by_status.items()):
        row = [*(statuses[door, status] for door in doors), number]
        told.append(f"{status:>8}" + "".join(f"{each:>12}" for each in row))
    told.append(f"memory: {outcome.grown / 2**20:+.1f} MiB; verify: {outcome.breaches or 'clean'}")
    for why, sent, head in outcome.found.wrong[:SHOWN]:
        told.append(f"{why} for {sent.door}: {sent.content[:2000]!r}: {head!r}")
    return told


def say(words: str) -> None:
    print(words, flush=True)  # noqa: T201 - that is what it is for


if __name__ == "__main__":
    sys.exit(main())
