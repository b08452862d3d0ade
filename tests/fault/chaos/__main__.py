"""`make chaos`: one campaign by its seed, and the table of what it found.

    python -m tests.fault.chaos --seed 1 --minutes 5

Ends with 1 where anything was lost, doubled or over-committed, or does not add up.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec
import uvloop

from tests.fault.chaos.campaign import run
from tests.fault.chaos.result import Plan
from tests.fault.chaos.table import report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.chaos")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--folder", type=Path, help="keeps the history there")
    parser.add_argument("--only", default="", help="faults with this in their name")
    parser.add_argument("--save", type=Path, help="keeps what was found there, to be summed up")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ae-chaos-") as own:
        plan = Plan(
            seed=given.seed,
            minutes=given.minutes,
            clients=given.clients,
            only=given.only,
            folder=given.folder or Path(own),
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            result = runner.run(run(plan))
    if given.save:
        given.save.write_bytes(msgspec.json.encode(result))
    print(report([result]))  # noqa: T201 - what it is for
    return 0 if result.is_good else 1


sys.exit(main())
