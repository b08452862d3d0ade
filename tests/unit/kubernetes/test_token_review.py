"""Whose token it is, as the API server says, and how seldom it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.support.fake_api.faults import Created, Fault, Lines, Refuse
from tests.support.fake_api.server import FakeApi
from tests.support.live import Clock
from tests.support.tokens import RESOURCE, Reviewer, token_of

from autoscale_enforcer.cluster.kubernetes import token_review
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.token_review import (
    ALL_CALLERS,
    BELIEVED_FOR,
    ONE_CALLER,
    REFUSED_FOR,
    TokenReviews,
)
from autoscale_enforcer.errors import ClusterUnavailable

AGENT = "neonvm-system/agent"
TOKEN = token_of(AGENT)


@dataclass(slots=True)
class Scene:
    api: FakeApi
    client: KubeApi
    reviewer: Reviewer
    clock: Clock
    reviews: TokenReviews

    async def allows(self, token: str = TOKEN, caller: str = "10.0.0.1") -> bool:
        return await self.reviews.is_allowed(token, caller=caller)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """An API server that knows one agent's token."""
    clock, reviewer = Clock(), Reviewer({TOKEN: AGENT})
    async with FakeApi() as api, KubeApi(api.access()) as client:
        api.always("create", RESOURCE, reviewer)
        reviews = TokenReviews(client, [AGENT], clock=clock)
        yield Scene(api, client, reviewer, clock, reviews)


async def test_a_token_that_the_api_server_knows_is_allowed(scene: Scene) -> None:
    assert await scene.allows()

    (seen,) = scene.api.requests("create", RESOURCE)
    assert b"audiences" not in seen.body


@pytest.mark.parametrize("account", ["neonvm-system/other", "other/agent"])
async def test_an_account_that_is_not_ours_is_not(scene: Scene, account: str) -> None:
    token = token_of(account)
    scene.reviewer.accounts[token] = account

    assert not await scene.allows(token)

    assert scene.reviewer.reviewed == []


async def test_what_counts_is_who_the_api_server_says_it_is(scene: Scene) -> None:
    token = token_of(AGENT, salt="forged")
    scene.reviewer.accounts[token] = "other/account"

    assert not await scene.allows(token)


@pytest.mark.parametrize(
    "token", ["x", "a.b.c", "..", "a.W10.c", "a.bnVsbA.c", "a.\u00fc.c", "a" * 9000]
)
async def test_what_is_no_token_is_refused_without_asking(scene: Scene, token: str) -> None:
    assert not await scene.allows(token)

    assert scene.reviewer.reviewed == []


async def test_a_token_must_be_made_for_us_where_that_is_asked(scene: Scene) -> None:
    reviews = TokenReviews(scene.client, [AGENT], audience="enforcer", clock=scene.clock)

    scene.reviewer.audiences = ["other"]
    assert not await reviews.is_allowed(TOKEN, caller="a")
    scene.clock.now += REFUSED_FOR + 1
    scene.reviewer.audiences = ["enforcer"]
    assert await reviews.is_allowed(TOKEN, caller="a")


async def test_an_api_server_that_knows_no_audiences_is_not_believed(scene: Scene) -> None:
    """It says yes to a token that was made for somebody else."""
    body = b'{"status": {"authenticated": true, "user": {"username": "system:serviceaccount:'
    body += AGENT.replace("/", ":").encode() + b'"}}}'
    scene.api.always("create", RESOURCE, Created(body))
    reviews = TokenReviews(scene.client, [AGENT], audience="enforcer", clock=scene.clock)

    assert not await reviews.is_allowed(TOKEN, caller="a")


async def test_a_yes_counts_for_a_while(scene: Scene) -> None:
    await scene.allows()
    scene.reviewer.accounts.clear()

    scene.clock.now += BELIEVED_FOR - 1
    assert await scene.allows()
    scene.clock.now += 2
    assert not await scene.allows()


async def test_a_no_counts_for_a_shorter_while(scene: Scene) -> None:
    token = token_of(AGENT, salt="new")
    assert not await scene.allows(token)
    scene.reviewer.accounts[token] = AGENT

    scene.clock.now += REFUSED_FOR - 1
    assert not await scene.allows(token)
    scene.clock.now += 2
    assert await scene.allows(token)


async def test_who_asks_for_the_same_token_waits_for_one_answer(scene: Scene) -> None:
    scene.reviewer.may_answer.clear()
    asked = [asyncio.create_task(scene.allows(caller=f"10.0.0.{n}")) for n in range(50)]
    await scene.api.until("create", RESOURCE, 1)

    asked[0].cancel()
    scene.reviewer.may_answer.set()

    assert all(await asyncio.gather(*asked[1:]))
    assert len(scene.reviewer.reviewed) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Refuse(403, "Forbidden"),
        Refuse(500),
        Lines((b"{}",)),
        Created(b"{}"),
        Created(b"[]"),
        Created(b"\xff"),
        Created(b'{"status": 5}'),
    ],
    ids=range(7),
)
async def test_trouble_is_no_answer_and_is_not_remembered(scene: Scene, fault: Fault) -> None:
    scene.api.always("create", RESOURCE, fault)
    with pytest.raises(ClusterUnavailable):
        await scene.allows()

    scene.api.always("create", RESOURCE, scene.reviewer)
    assert await scene.allows()


async def test_one_caller_has_a_share_of_the_reviews_only(scene: Scene) -> None:
    """A flood of forged tokens would leave nothing to those who have real ones."""
    results = [
        await asyncio.gather(scene.allows(token_of(AGENT, salt=str(n))), return_exceptions=True)
        for n in range(ALL_CALLERS.burst)
    ]

    assert len(scene.reviewer.reviewed) == ONE_CALLER.burst
    assert sum(isinstance(each, ClusterUnavailable) for (each,) in results) > 0
    assert await scene.allows(caller="10.0.0.2")


async def test_all_callers_together_have_a_budget(scene: Scene) -> None:
    longest = ALL_CALLERS.burst + ALL_CALLERS.per_second * ALL_CALLERS.longest_wait.total_seconds()
    scene.reviewer.may_answer.clear()

    asked = [
        asyncio.create_task(scene.allows(token_of(AGENT, salt=str(n)), caller=f"10.0.{n}.1"))
        for n in range(int(longest) + 20)
    ]
    done, waiting = await asyncio.wait(asked, timeout=0.5)

    assert len(done) >= 19
    assert all(isinstance(each.exception(), ClusterUnavailable) for each in done)
    scene.reviewer.may_answer.set()
    await asyncio.gather(*waiting)


async def test_no_more_is_remembered_than_there_is_room_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_review, "REMEMBERED", 5)

    for n in range(10):
        await scene.allows(token_of(AGENT, salt=str(n)), caller=f"10.0.0.{n}")

    assert (len(scene.reviews._known), len(scene.reviews._shares)) == (5, 5)
    assert scene.reviews._asking == {}
