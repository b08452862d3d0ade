"""The first pods of a new ledger: each once, those of a node together, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest
from tests.support.books import pod

from autoscale_enforcer.cluster.kubernetes.loading import AT_ONCE, PORTION, FirstPods
from autoscale_enforcer.cluster.upkeep import LostLead
from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import PodUid

LEADER = Leadership("t", "epoch")
MANY = PORTION * (AT_ONCE + 1) + 1


class Heard:
    """A ledger that notes what it is told, and gives the answers that wait for it."""

    def __init__(self) -> None:
        self.portions: list[list[tuple[PodFact, bool]]] = []
        self.answers: list[list[PodUid] | Exception | None] = []
        self.most_at_once = self._now = 0

    async def load_pods(
        self, facts: Iterable[tuple[PodFact, bool]], *, leader: Leadership
    ) -> list[PodUid] | None:
        assert leader is LEADER
        self.portions.append(list(facts))
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        await asyncio.sleep(0)
        self._now -= 1
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def uids(self) -> list[str]:
        return [fact.uid for portion in self.portions for fact, _ in portion]


def first_pods(heard: Heard, facts: list[PodFact], *, ignored: str = "") -> FirstPods:
    ledger: Any = heard
    found = FirstPods(cast("Ledger", ledger), is_ignored=lambda fact: fact.uid == ignored)
    found.take(facts)
    return found


def many() -> list[PodFact]:
    return [pod(f"u{number}", node=f"n{number % 7}") for number in range(MANY)]


async def test_each_pod_is_loaded_once_and_those_of_a_node_together() -> None:
    heard = Heard()

    left = await first_pods(heard, many()).load(LEADER)

    assert left == []
    assert sorted(heard.uids) == sorted(fact.uid for fact in many())
    assert max(len({fact.node for fact, _ in portion}) for portion in heard.portions) <= 3
    assert max(map(len, heard.portions)) == PORTION
    assert heard.most_at_once == AT_ONCE


async def test_ignored_namespaces_are_told() -> None:
    heard = Heard()

    await first_pods(heard, [pod("u1"), pod("u2", node="n1")], ignored="u2").load(LEADER)

    told = {fact.uid: ignored for portion in heard.portions for fact, ignored in portion}
    assert told == {"u1": False, "u2": True}


async def test_what_the_ledger_left_out_is_given_back() -> None:
    heard = Heard()
    heard.answers = [[PodUid("u2")]]

    left = await first_pods(heard, [pod("u1"), pod("u2")]).load(LEADER)

    assert left == [pod("u2")]


@pytest.mark.parametrize(
    ("answer", "raised"),
    [(None, LostLead), (LedgerUnavailable("away"), LedgerUnavailable)],
    ids=["fenced", "away"],
)
async def test_a_failure_ends_it(answer: Exception | None, raised: type[Exception]) -> None:
    heard = Heard()
    heard.answers = [answer]
    pods = first_pods(heard, many())

    with pytest.raises(raised):
        await pods.load(LEADER)
    await asyncio.sleep(0)

    assert len(heard.portions) <= 2 * AT_ONCE
    assert await pods.load(LEADER) == []
