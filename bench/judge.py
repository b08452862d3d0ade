"""Whether what was told is true, from the pods' rows alone: no sum that a script keeps is used."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

from autoscale_enforcer.ledger.calls import LedgerSettings
from autoscale_enforcer.ledger.connection import ConnectionSettings
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.reading import read_books
from autoscale_enforcer.ledger.verify import Books, breaches
from autoscale_enforcer.model.resources import NOTHING, Resources
from bench.figures import WrongAnswer
from bench.scheduling import passed

PATIENCE = timedelta(minutes=2)
"""To read a whole ledger; a replica gives up long before one of 150,000 pods is read."""


def verify(admin: str) -> None:
    """Raise WrongAnswer where a replica finds that the ledger does not add up."""
    with urllib.request.urlopen(f"{admin}/api/v1/verify", timeout=120) as answer:  # noqa: S310
        found = json.load(answer)["breaches"]
    if found:
        raise WrongAnswer(f"verify: {found[:3]}")


def books_of(redis_url: str) -> Books:
    """The ledger there at one moment; WrongAnswer where it does not add up."""
    return asyncio.run(read(redis_url))


async def read(redis_url: str) -> Books:
    """As `books_of`, within a loop."""
    connection = ConnectionSettings(url=redis_url, socket_timeout=PATIENCE.total_seconds())
    ledger = Ledger.open(LedgerSettings(connection=connection, call_budget=PATIENCE))
    try:
        books = await read_books(ledger)
    finally:
        await ledger.close()
    if found := breaches(books):
        raise WrongAnswer(f"verify: {found[:3]}")
    return books


def free(books: Books) -> dict[str, Resources]:
    """What is left on each node."""
    taken: dict[str, Resources] = defaultdict(lambda: NOTHING)
    for pod in books.pods.values():
        if pod.holds:
            taken[pod.node] += pod.overcommit.charge(pod.amount)
    return {name: node.capacity - taken[name] for name, node in books.nodes.items()}


def judge_filter(books: Books, offered: Sequence[str], needs: Resources, answer: bytes) -> None:
    """Raise WrongAnswer where a filter lets through other nodes than have the room."""
    left = free(books)
    wanted = {name for name in offered if needs.at_most(left[name]) == needs}
    if passed(answer) != wanted:
        differing = sorted(passed(answer) ^ wanted)
        raise WrongAnswer(f"filter for {needs}: wrong about {differing[:3]}")
