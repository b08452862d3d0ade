"""An API server that takes requests and never answers: every door answers all the same, in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.support.cluster_double import Json, runs_vm
from tests.support.fake_api.faults import DoneButUnanswered, Silence
from tests.support.fake_api.samples import pod
from tests.support.fake_api.server import FakeApi
from tests.support.live import Live, StartLive

from autoscale_enforcer.config.settings import LimitSettings

SOON = LimitSettings(answer_within=timedelta(milliseconds=500))
HALF = 2.5
"""Seconds: half of what kube-scheduler gives an extender unless it is told otherwise."""
TOO_LATE = "no answer in time: ask again"

READS = (("get", "pods"), ("get", "virtualmachines"), ("list", "pods"))
WRITES = (("create", "pods/binding"), ("patch", "pods/status"))


@pytest.fixture
async def hung(start_live: StartLive, api: FakeApi) -> AsyncIterator[Live]:
    """Since it leads, nothing that a request needs is answered any more."""
    live = await start_live(replica={"limits": SOON})
    await live.lead()
    silence = Silence(with_head=False)
    for verb, resource in (*READS, *WRITES):
        api.always(verb, resource, silence)
    yield live
    for verb, resource in (*READS, *WRITES):
        api.always(verb, resource, None)
    silence.over.set()


def asks(uid: str = "u1") -> Json:
    return pod("web", uid=uid, namespace="default")


async def test_bind_is_answered_within_half_of_kube_schedulers_time(hung: Live) -> None:
    """It took 10 s: the Binding's limit, and then that of the live read."""
    await hung.front.filter(asks())
    began = time.monotonic()

    error = await hung.front.bind(asks())

    assert time.monotonic() - began < HALF
    assert error == TOO_LATE
    assert await hung.where("u1") == "binding n1"


async def test_every_verb_and_agent_is_answered_within_that_time(hung: Live, api: FakeApi) -> None:
    """One live read took twice as long as kube-scheduler waits."""
    old_vm = asks() | {"metadata": asks()["metadata"] | runs_vm(annotations={})}
    victims = {"n1": {"Pods": [{"UID": "u0"}]}}
    began = time.monotonic()

    answers = await asyncio.gather(
        hung.front.post("filter", Pod=old_vm, NodeNames=["n1"]),
        hung.front.send("extender", "/extender/prioritize", {"Pod": old_vm, "NodeNames": ["n1"]}),
        hung.front.send(
            "extender", "/extender/preempt", {"Pod": asks(), "NodeNameToMetaVictims": victims}
        ),
        hung.front.reserve(old_vm),
        hung.front.ask("nobody-knows", 1, "1Gi"),
    )

    assert time.monotonic() - began < HALF
    filtered, scored, preempted, reserved, permit = answers
    assert filtered["Error"] == TOO_LATE
    assert reserved == ("Error", [TOO_LATE])
    assert [scored.status, preempted.status, permit.status] == [503, 503, 503]


async def test_a_binding_that_is_stored_and_never_answered_is_found_in_time(
    live: Live, api: FakeApi
) -> None:
    """Field report 1: the server sits on its reply for longer than kube-scheduler waits."""
    api.store.create("pods", asks())
    await live.front.filter(asks())
    unanswered = DoneButUnanswered()
    api.next("create", "pods/binding", unanswered)

    error = await live.front.bind(asks())

    assert error == ""
    assert await live.where("u1") == "bound n1"
    unanswered.over.set()


async def test_a_bind_answered_too_late_is_settled_by_the_sweep(
    start_live: StartLive, api: FakeApi
) -> None:
    live = await start_live(replica={"hold_lifetime": timedelta(milliseconds=1)})
    await live.lead()
    api.store.create("pods", asks())
    await live.front.filter(asks())
    silence = Silence(with_head=False)
    api.always("create", "pods/binding", silence)
    assert await live.front.bind(asks()) == TOO_LATE

    await live.front.sweep()

    assert await live.where("u1") == "pending -"
    assert await live.verify() == []
    api.always("create", "pods/binding", None)
    silence.over.set()
    await asyncio.wait(live.front.desk._running)
    assert await live.where("u1") == "pending -"
