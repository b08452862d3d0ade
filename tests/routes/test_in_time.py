"""However long the API server takes, a caller is answered before it gives up; the work goes on."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from autoscale_enforcer.config.settings import LimitSettings, Settings
from tests.routes.conftest import StartReplica
from tests.support.cluster_double import (
    ClusterDouble,
    Json,
    pod_json,
    runs_vm,
    vm_resources,
)
from tests.support.replica import Replica, bind_args

TOO_LATE = "no answer in time: ask again"
SOON = LimitSettings(answer_within=timedelta(milliseconds=500))
HTTP_TIMEOUT = 5.0
"""Seconds that kube-scheduler gives an extender unless it is told otherwise."""


@pytest.fixture
async def soon(start: StartReplica) -> Replica:
    """A replica whose answers are due at once."""
    replica = await start(limits=SOON)
    await replica.lead()
    return replica


def old_vm_pod(uid: str) -> Json:
    """Of a VM that only its own object describes, as before NeonVM v0.27."""
    return pod_json(uid, metadata=runs_vm(annotations={}))


def test_an_answer_is_due_below_half_of_what_kube_scheduler_waits() -> None:
    assert Settings().limits.answer_within.total_seconds() < HTTP_TIMEOUT / 2


async def test_a_bind_is_answered_in_time_while_nothing_comes_from_the_api_server(
    soon: Replica, cluster: ClusterDouble
) -> None:
    """It took the Binding's 5 s and then the live read's, and kube-scheduler had gone."""
    pod = cluster.pod("u1")
    await soon.filter(pod)
    cluster.hanging = {"bind", "read_pod"}
    began = time.monotonic()

    error = await soon.bind(pod)

    assert time.monotonic() - began < HTTP_TIMEOUT / 2
    assert error == TOO_LATE
    assert await soon.where("u1") == "binding n1"
    cluster.recover()
    await asyncio.wait(soon.desk._running)
    assert cluster.where("u1") == "n1"
    assert await soon.where("u1") == "bound n1"


async def test_what_ends_badly_after_its_answer_is_logged(
    soon: Replica, cluster: ClusterDouble, caplog: pytest.LogCaptureFixture
) -> None:
    """A right that was missing for the fencing PATCH was told to nobody: the caller had gone."""
    pod = cluster.pod("u1")
    await soon.filter(pod)
    cluster.answers_bind(cluster.delayed)
    cluster.hanging = {"read_pod"}

    assert await soon.bind(pod) == TOO_LATE
    cluster.down = {"outdate_bindings"}
    cluster.recover()
    await asyncio.wait(soon.desk._running)

    assert "the API cannot be reached: outdate_bindings" in caplog.text
    assert await soon.where("u1") == "binding n1"


async def test_a_bind_whose_answer_is_lost_is_found_in_time(
    replica: Replica, cluster: ClusterDouble
) -> None:
    """Field report 1, with a client that waits longer for the Binding than its caller for us."""
    pod = cluster.pod("u1")
    await replica.filter(pod)
    gate = asyncio.Event()

    async def stored_and_silent(apply: object) -> object:
        assert callable(apply)
        apply()
        await gate.wait()
        raise AssertionError("nobody waits for it any more")

    cluster.answers_bind(stored_and_silent)  # type: ignore[arg-type]

    assert await replica.bind(pod) == ""

    assert await replica.where("u1") == "bound n1"
    assert not replica.desk._running


async def test_a_bind_that_was_answered_too_late_is_taken_over_by_the_next(
    soon: Replica, cluster: ClusterDouble
) -> None:
    pod = cluster.pod("u1")
    await soon.filter(pod)
    cluster.hanging = {"bind"}
    assert await soon.bind(pod) == TOO_LATE
    cluster.hanging = set()

    assert await soon.bind(pod) == ""

    cluster.recover()  # the first Binding arrives after the second
    await asyncio.wait(soon.desk._running)
    assert await soon.where("u1") == "bound n1"
    assert await soon.reserved() == (1000, 1024)
    assert await soon.verify() == []


async def test_a_sweep_settles_a_bind_that_was_answered_too_late(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    replica = await start(limits=SOON, hold_lifetime=timedelta(milliseconds=1))
    await replica.lead()
    pod = cluster.pod("u1")
    await replica.filter(pod)
    cluster.hanging = {"bind"}
    assert await replica.bind(pod) == TOO_LATE

    await replica.sweep()

    assert await replica.where("u1") == "pending -"
    cluster.recover()
    await asyncio.wait(replica.desk._running)
    assert cluster.where("u1") is None  # its version was outdated before the room was freed
    assert await replica.where("u1") == "pending -"
    assert await replica.verify() == []


async def test_binds_behind_their_answers_are_limited(
    start: StartReplica, cluster: ClusterDouble
) -> None:
    """An API server that hangs let any number of them pile up."""
    replica = await start(limits=replace(SOON, requests=2))
    await replica.lead()
    cluster.hanging = {"bind"}
    for uid in ("u1", "u2"):
        assert await replica.bind(cluster.pod(uid)) == TOO_LATE
    before = await replica.dump()

    refused = await replica.send("extender", "/extender/bind", bind_args(cluster.pod("u3")))

    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert refused.text == "too many binds are under way: ask again\n"
    assert await replica.dump() == before
    cluster.recover()
    await asyncio.wait(replica.desk._running)
    assert await replica.bind(cluster.pod("u3")) == ""


async def test_a_verb_with_a_place_for_errors_says_that_it_is_late(
    soon: Replica, cluster: ClusterDouble
) -> None:
    pod = old_vm_pod("u1")
    cluster.vm("vm-a", vm_resources())
    cluster.hanging = {"virtual_machine"}

    assert (await soon.filter(pod)).error == TOO_LATE
    assert await soon.reserve(pod) == ("Error", [TOO_LATE])

    assert await soon.where("u1") == "unknown"
    cluster.recover()
    assert (await soon.filter(pod)).passed == ["n1"]
    assert await soon.reserve(pod) == ("Success", [])


@pytest.mark.parametrize(
    ("verb", "hangs", "fields"),
    [
        ("prioritize", "virtual_machine", {"NodeNames": ["n1"]}),
        (
            "preempt",
            "pods_on",
            {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u0"}]}}},
        ),
    ],
)
async def test_a_verb_without_a_place_for_errors_answers_503(
    soon: Replica, cluster: ClusterDouble, verb: str, hangs: str, fields: Json
) -> None:
    pod = old_vm_pod("u1") if verb == "prioritize" else pod_json("u1")
    cluster.hanging = {hangs}

    reply = await soon.send("extender", f"/extender/{verb}", {"Pod": pod, **fields})

    assert (reply.status, reply.text) == (503, TOO_LATE + "\n")


async def test_an_agent_is_answered_503_in_time(soon: Replica, cluster: ClusterDouble) -> None:
    cluster.pod("u1", node="n1", metadata=runs_vm())
    cluster.hanging = {"read_pod"}

    reply = await soon.ask("u1", 2, "2Gi")

    assert (reply.status, reply.text) == (503, TOO_LATE + "\n")
    cluster.recover()
    assert await soon.permit("u1", 2, "2Gi") == (2, "2Gi")


async def test_an_unreserve_is_answered_in_time(
    soon: Replica, cluster: ClusterDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(soon.ledger, "unreserve_pod", never)

    assert await soon.unreserve(cluster.pod("u1")) == ("Error", [TOO_LATE])


async def test_a_stop_waits_for_binds_that_were_answered_already(
    soon: Replica, cluster: ClusterDouble
) -> None:
    """Field report 30: a hold without a Binding was left by a replica that stopped."""
    pod = cluster.pod("u1")
    cluster.hanging = {"bind"}
    assert await soon.bind(pod) == TOO_LATE

    await soon.desk.finish(0.01)
    assert await soon.where("u1") == "binding n1"

    ending = asyncio.ensure_future(soon.desk.finish(5))
    cluster.recover()
    await ending
    assert await soon.where("u1") == "bound n1"
    assert not soon.desk._running
