"""Which answers of Redis mean that another server is to be asked, which that it refuses."""

from __future__ import annotations

import pytest
from redis._parsers import BaseParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from autoscale_enforcer.errors import LedgerUnavailable, ScriptContractError
from autoscale_enforcer.ledger.exchange import as_ours
from autoscale_enforcer.ledger.faults import is_lost_connection

ELSEWHERE = [
    "READONLY You can't write against a read only replica.",
    "LOADING Redis is loading the dataset in memory",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "CLUSTERDOWN The cluster is down",
    "MOVED 3999 127.0.0.1:6381",
    "ASK 3999 127.0.0.1:6381",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "NOREPLICAS Not enough good replicas to write.",
    "UNBLOCKED force unblock from blocking operation, instance state changed",
    "ERR WAIT cannot be used with replica instances.",
    "NOAUTH Authentication required.",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "ERR max number of clients reached",
]
REFUSALS = [
    "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF Errors writing to the AOF file: No space left on device",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "NOPERM this user has no permissions to run the 'evalsha' command",
    "ERR Error running script",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
]


def answered(text: str) -> Exception:
    """What redis-py makes of an error that a server answers."""
    error: Exception = BaseParser.parse_error(text)  # type: ignore[no-untyped-call]
    return error


@pytest.mark.parametrize("text", ELSEWHERE)
def test_answer_means_to_look_for_the_primary_again(text: str) -> None:
    assert is_lost_connection(answered(text))


@pytest.mark.parametrize(
    "error", [RedisConnectionError("x"), RedisTimeoutError("x"), ConnectionResetError(), OSError()]
)
def test_no_answer_means_the_same(error: Exception) -> None:
    assert is_lost_connection(error)


@pytest.mark.parametrize("text", REFUSALS)
def test_answer_is_a_refusal_that_is_told_with_its_words(text: str) -> None:
    error = answered(text)

    ours = as_ours("reserve_pod", error)

    assert not is_lost_connection(error)
    assert isinstance(ours, LedgerUnavailable)
    assert text.rsplit(maxsplit=1)[-1] in str(ours)


def test_error_inside_a_script_is_a_bug() -> None:
    error = answered("ERR user_script:3: attempt to index a nil value")

    assert isinstance(as_ours("reserve_pod", error), ScriptContractError)
