"""Which servers are refused, which are warned of."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from autoscale_enforcer.errors import LedgerUnfit
from autoscale_enforcer.ledger.durability import Durability, Waiting
from autoscale_enforcer.ledger.fitness import judge
from autoscale_enforcer.ledger.ledger import Ledger
from tests.conftest import StartServer
from tests.support.books import settings_at

GOOD = {
    "redis_version": "7.2.4",
    "maxmemory": "1000",
    "maxmemory_policy": "noeviction",
    "aof_enabled": "1",
    "appendfsync": "always",
    "min-replicas-to-write": "1",
}
NONE, REPLICA, AOF = Durability.NONE, Durability.REPLICA, Durability.AOF

CASES: list[tuple[dict[str, str | None], Durability, str, bool]] = [
    ({"redis_version": "6.2.14"}, NONE, "7.0 or newer", True),
    ({"redis_version": "7.0.15"}, AOF, "needs 7.2", True),
    ({"redis_version": None}, NONE, "cannot be seen", False),
    ({"maxmemory_policy": "allkeys-lru"}, NONE, "allkeys-lru", True),
    ({"maxmemory_policy": "volatile-ttl"}, NONE, "volatile-ttl", True),
    ({"maxmemory_policy": "allkeys-lru", "maxmemory": "0"}, NONE, "allkeys-lru", False),
    ({"aof_enabled": "0"}, NONE, "appendonly is no", False),
    ({"aof_enabled": "0"}, REPLICA, "appendonly is no", False),
    ({"aof_enabled": "0"}, AOF, "appendonly is no", True),
    ({"appendfsync": "everysec"}, AOF, "appendfsync is everysec", True),
    ({"appendfsync": None}, AOF, "cannot be seen", False),
    ({"min-replicas-to-write": "0"}, REPLICA, "min-replicas-to-write is 0", False),
    ({"min-replicas-to-write": None}, REPLICA, "min-replicas-to-write is 0", False),
]


@pytest.mark.parametrize(("wrong", "durability", "words", "is_refused"), CASES)
def test_server_is_refused_or_warned_of(
    wrong: dict[str, str | None], durability: Durability, words: str, is_refused: bool
) -> None:
    facts = {name: value for name, value in (GOOD | wrong).items() if value is not None}

    (finding,) = judge(facts, durability)

    assert words in finding.words
    assert finding.is_refused is is_refused


@pytest.mark.parametrize("durability", Durability)
def test_server_that_is_set_up_well_is_taken(durability: Durability) -> None:
    assert list(judge(GOOD, durability)) == []


@pytest.mark.parametrize(
    ("changed", "durability"),
    [
        ({"redis_version": "7.0.0"}, NONE),
        ({"appendfsync": "everysec"}, REPLICA),
        ({"min-replicas-to-write": "0"}, NONE),
        ({"min-replicas-to-write": None, "min_slaves_good_slaves": "2"}, REPLICA),
    ],
)
def test_what_a_durability_does_not_need_is_not_asked_for(
    changed: dict[str, str | None], durability: Durability
) -> None:
    facts = {name: value for name, value in (GOOD | changed).items() if value is not None}

    assert list(judge(facts, durability)) == []


KINDS = ["valkey", pytest.param("redis", marks=pytest.mark.long)]


def opened(url: str, durability: Durability = NONE) -> Ledger:
    waiting = Waiting(durability=durability, timeout=timedelta(seconds=10))
    return Ledger.open(settings_at(url, waiting=waiting))


@pytest.mark.parametrize("kind", KINDS)
async def test_evicting_server_is_refused_until_it_is_mended(
    kind: str, start_server: StartServer
) -> None:
    server = start_server(
        "redis" if kind == "redis" else "valkey",
        *("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "yes"),
    )
    ledger = opened(server.url)

    with pytest.raises(LedgerUnfit, match="maxmemory-policy is allkeys-lru"):
        await ledger.look()

    with server.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
    assert (await ledger.look()).state == "UNBUILT"
    await ledger.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_server_is_warned_of_once(
    kind: str, start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server("redis" if kind == "redis" else "valkey")
    ledger = opened(server.url, REPLICA)

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            await ledger.look()
            await ledger.pipeline.exchange._link.forget()

    texts = [record.getMessage() for record in caplog.records]
    assert ["appendonly" in texts[0], "min-replicas-to-write" in texts[1]] == [True, True]
    assert len(texts) == 2
    await ledger.close()


@pytest.mark.parametrize("policy", ["everysec", "always"])
async def test_aof_needs_appendfsync_always(policy: str, start_server: StartServer) -> None:
    server = start_server("valkey", "--appendonly", "yes", "--appendfsync", policy)
    ledger = opened(server.url, AOF)

    if policy == "always":
        assert (await ledger.look()).state == "UNBUILT"
    else:
        with pytest.raises(LedgerUnfit, match="appendfsync is everysec"):
            await ledger.look()

    await ledger.close()


async def test_user_who_may_not_see_the_config_is_let_in(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server("valkey", "--appendonly", "yes", "--appendfsync", "always")
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-config")
    ledger = opened(server.url, AOF)

    with caplog.at_level(logging.WARNING):
        await ledger.look()

    assert "appendfsync cannot be seen" in caplog.text
    await ledger.close()
