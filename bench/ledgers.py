"""A ledger of any size, built through the scripts as a leader builds it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

from autoscale_enforcer.ledger.calls import Leadership
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.objects.decode import convert
from autoscale_enforcer.objects.nodes import read_node
from autoscale_enforcer.objects.pods import read_pod
from autoscale_enforcer.objects.shapes import NodeObject, PodObject
from bench.cluster import Json, Size, objects

_AT_ONCE = 500


def pod_fact(made: Json) -> PodFact:
    """What the service reads in a generated pod."""
    return read_pod(convert(made, PodObject))


def pod_needs(made: Json) -> Resources:
    """What that pod asks for."""
    return pod_fact(made).wanted


async def build(ledger: Ledger, size: Size) -> None:
    """Books of that cluster, settled."""
    await ledger.take_lease(holder="bench", token="bench", lifetime=timedelta(hours=1))  # noqa: S106
    building = await ledger.begin_build(Leadership("bench"))
    if building is None:
        raise ValueError("another leads")
    facts = _facts(ledger, building, size)
    while chunk := list(islice(facts, _AT_ONCE)):
        await asyncio.gather(*chunk)
    await ledger.publish_build(building, suspect=False)
    await ledger.drop_lease(token="bench")  # noqa: S106


def _facts(ledger: Ledger, leader: Leadership, size: Size) -> Iterator[Awaitable[Any]]:
    for each in objects(size):
        if each["kind"] == "Node":
            node = read_node(convert(each, NodeObject))
            yield ledger.put_node(
                node, capacity=node.allocatable, config_version="1", leader=leader
            )
        elif each["kind"] == "Pod":
            yield ledger.put_pod(pod_fact(each), leader=leader, ignored=False)
