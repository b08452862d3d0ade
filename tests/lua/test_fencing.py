"""What every changing script refuses: another epoch, and facts of a leader that was overtaken."""

from __future__ import annotations

from typing import Any

import pytest

from autoscale_enforcer.ledger.scripts import load_scripts
from tests.support.books import EPOCH, TOKEN, Books, pod

CONTEXT: dict[str, Any] = {"most": 9, "context": b""}
SAID = "default/u1 - pending 1 - - 0 0 0 0 0 1 1 0 0 0 0 0 0 0 0 0 0 1000 1000 0 0"
ARGUMENTS: dict[str, dict[str, Any]] = {
    "abandon_bind": {"stamp": 99, "uid": "u1", "node": "n1", **CONTEXT},
    "confirm_bind": {"uid": "u1", "node": "n1", "said": SAID, **CONTEXT},
    "delete_node": {"token": TOKEN, "name": "n1", "uid": "uid-n1", **CONTEXT},
    "delete_pod": {"token": TOKEN, "uid": "u1", "name": "default/u1", **CONTEXT},
    "put_node": {
        "token": TOKEN,
        "name": "n1",
        "uid": "uid-n1",
        "rv": "2",
        "config": "1",
        "cap_cpu": 1,
        "cap_mem": 1,
        "blob": b"",
        **CONTEXT,
    },
    "put_pod": {
        "token": TOKEN,
        "uid": "u1",
        "said": SAID,
        "finished": 1,
        "deleting": 0,
        "approved_cpu": 0,
        "approved_mem": 0,
        "blob": b"",
        **CONTEXT,
    },
    "recount_node": {"token": TOKEN, "name": "n1", "version": 1, "uids": "u1", **CONTEXT},
    "release_leftover": {"uid": "u1", **CONTEXT},
    "request_permit": {
        "stamp": 99,
        "name": "default/u1",
        "cpu": 1,
        "mem": 1,
        "factor_cpu": 1,
        "factor_mem": 1,
        "last_cpu": 0,
        "last_mem": 0,
        **CONTEXT,
    },
    "reserve_pod": {
        "stamp": 99,
        "uid": "u1",
        "node": "n1",
        "said": SAID,
        "to": "held",
        "hold_ms": 1,
        **CONTEXT,
    },
    "settle_ledger": {"token": TOKEN, "settle_after_ms": 0, "most": 9},
    "unreserve_pod": {"stamp": 99, "uid": "u1", "node": "n1", **CONTEXT},
}


def answering(word: str, *, with_argument: str) -> list[str]:
    scripts = load_scripts().values()
    return [s.name for s in scripts if word in s.words and with_argument in s.arg_names]


@pytest.mark.parametrize("script", answering("EPOCH", with_argument="epoch"))
async def test_changing_script_of_another_epoch_does_nothing(books: Books, script: str) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"))
    before = await books.dump()

    answer = await books.run(script, epoch="other", **ARGUMENTS[script])

    assert answer == ["EPOCH"]
    assert await books.dump() == before


BESIDE_THE_BOOKS = {"begin_build", "load_pods"}
"""Of a build; their own tests have a build to be fenced off from."""


@pytest.mark.parametrize(
    "script", sorted({*answering("FENCED", with_argument="epoch")} - BESIDE_THE_BOOKS)
)
async def test_fact_of_a_leader_that_was_overtaken_does_nothing(books: Books, script: str) -> None:
    await books.put_node("n1")
    await books.reserve(pod("u1"))
    before = await books.dump()

    answer = await books.run(script, epoch=EPOCH, **{**ARGUMENTS[script], "token": "stale"})

    assert answer == ["FENCED"]
    assert await books.dump() == before
