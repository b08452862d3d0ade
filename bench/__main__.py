"""Measures the service: python -m bench [--short] [--soak-seconds N] [NAME ...]

Exits with 0 when every figure is within its limit, with 1 when one is not, with 2 when an answer
was wrong or did not come: then no figure counts. With --short only a wrong answer is a failure.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from bench import agent_rate, cold_start, cost, filter_time, kube_scheduler, soak
from bench.figures import Figure, WrongAnswer
from bench.load import LoadError
from bench.scale import FULL, SHORT, Say, Scale

Bench = Callable[[Scale, Say], Iterator[Figure]]

BENCHES: dict[str, Bench] = {
    "agents": agent_rate.run,
    "filter": filter_time.run,
    "cost": cost.run,
    "cold": cold_start.run,
    "soak": soak.run,
    "scheduler": kube_scheduler.run,
}


def main() -> int:
    """The command; its exit code."""
    given = _arguments()
    scale = SHORT if given.short else FULL
    if given.soak_seconds is not None:
        scale = replace(scale, soak_seconds=given.soak_seconds)
    began = time.monotonic()
    say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    missed = []
    for name in given.names or BENCHES:
        try:
            for figure in BENCHES[name](scale, partial(_say_of, name)):
                shown = replace(figure, bound="shown") if given.short else figure
                sys.stdout.write(f"{shown}\n")
                sys.stdout.flush()
                missed += [] if shown.is_met else [figure.name]
        except (WrongAnswer, LoadError) as error:
            say(f"{name}: VOID: {error}")
            return 2
    say(f"took {time.monotonic() - began:.0f} s, {len(missed)} limits missed")
    return 1 if missed else 0


def _say_of(name: str, text: str) -> None:
    say(f"{name}: {text}")


def say(text: str) -> None:
    """To whoever waits."""
    sys.stdout.write(f"# {text}\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--short", action="store_true", help="only see that everything works")
    parser.add_argument("--soak-seconds", type=float, help="how long the soak lasts")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
