"""What is kept beside a row, and the fact that comes of both."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import msgspec
import pytest

from autoscale_enforcer.ledger.kept import pack_fact, pack_whole, unpack_fact
from autoscale_enforcer.ledger.outcomes import KnownPod
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.resources import Overcommit, Resources
from autoscale_enforcer.model.rows import PodRow, Stage, said_row
from tests.support.books import pod, vm

VM = vm(approved=Resources(1, 2), over=(1500, 2000))


def booked(fact: PodFact) -> PodRow:
    return replace(said_row(fact), stage=Stage.BOUND if fact.node else Stage.PENDING)


def known(uid: PodUid, row: PodRow, blob: bytes) -> KnownPod:
    return KnownPod(uid=uid, row=row, blob=blob)


@pytest.mark.parametrize(
    "fact",
    [
        pytest.param(pod("u1", rv="7", cpu=200, mem=300), id="pending"),
        pytest.param(pod("u1", rv="", node="n1"), id="bound, without a version"),
        pytest.param(pod("u1", node="n1", deleting=True), id="deleting"),
        pytest.param(pod("u1", labels={"app": "web"}), id="labels"),
        pytest.param(pod("u1", node="n1", problem="no JSON"), id="broken"),
        pytest.param(pod("u1", node="n1", migration_source=True, vm=VM), id="leaving"),
        pytest.param(
            pod("u1", vm=replace(VM, from_vm_object=True, vm_resource_version="9")), id="object"
        ),
        pytest.param(pod("u1", vm=replace(VM, autoscaling=False)), id="not scaled"),
    ],
)
def test_the_fact_is_the_row_and_what_is_kept(fact: PodFact) -> None:
    assert unpack_fact(known(fact.uid, booked(fact), pack_fact(fact))) == fact


def test_of_a_plain_pod_nothing_is_kept() -> None:
    assert pack_fact(pod("u1", node="n1")) == b""


def test_a_hold_is_no_fact() -> None:
    row = replace(booked(pod("u1")), stage=Stage.HELD, node="n1")

    found = unpack_fact(known(pod("u1").uid, row, b""))

    assert found == pod("u1")


def test_a_vm_of_which_nothing_is_kept_is_not_known() -> None:
    fact = pod("u1", vm=VM)

    assert unpack_fact(known(fact.uid, booked(fact), b"")) is None
    assert unpack_fact(None) is None


def test_a_whole_fact_is_what_the_first_release_keeps_and_reads() -> None:
    fact = pod("u1", node="n1", vm=VM, labels={"app": "web"})

    whole = pack_whole(fact)

    assert whole == msgpack.packb(msgspec.to_builtins(fact))
    assert unpack_fact(known(fact.uid, booked(fact), whole)) == fact


def test_the_row_is_believed_where_it_is_newer() -> None:
    fact = pod("u1", vm=VM)
    row = replace(booked(fact), stage=Stage.BOUND, node="n2", over_cpu=3000)

    found = unpack_fact(known(fact.uid, row, pack_fact(fact)))

    assert found == replace(
        fact, node=NodeName("n2"), vm=replace(VM, overcommit=Overcommit(3000, 2000))
    )


@pytest.mark.parametrize("blob", [b"\x01", b"\xc1", msgpack.packb({"vm": 3})])
def test_what_nobody_of_ours_kept_is_not_read(blob: bytes) -> None:
    assert unpack_fact(known(pod("u1").uid, booked(pod("u1")), blob)) is None
