"""A replica on real ports and a real server, over a cluster that does what the test says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Protocol

import pytest
import redis.asyncio

from tests.conftest import StartServer
from tests.support.cluster_double import ClusterDouble
from tests.support.port import OpenPort, ports
from tests.support.replica import Kind, Replica, running
from tests.support.servers import async_client


class StartReplica(Protocol):
    async def __call__(self, source: Any = None, **kind: Any) -> Replica: ...


@pytest.fixture
def cluster() -> ClusterDouble:
    """n1 of the field reports: 8 CPU and 32Gi, nothing on it."""
    cluster = ClusterDouble()
    cluster.node("n1", cpu="8", mem="32Gi")
    return cluster


@pytest.fixture
async def start(
    redis_url: str, raw_client: redis.asyncio.Redis, cluster: ClusterDouble
) -> AsyncIterator[StartReplica]:
    """`await start(**kind)`: one more replica over the same server and cluster, not leading yet."""
    async with AsyncExitStack() as stack:

        async def start_one(source: Any = None, **kind: Any) -> Replica:
            one = running(redis_url, raw_client, source or cluster, Kind(**kind))
            return await stack.enter_async_context(one)

        yield start_one


@pytest.fixture
async def replica(start: StartReplica) -> Replica:
    """The replica, its ledger built from what the cluster had when the test began."""
    replica = await start()
    await replica.lead()
    return replica


@pytest.fixture
async def orphan(start_server: StartServer, cluster: ClusterDouble) -> AsyncIterator[Replica]:
    """A replica whose Redis has died since its ledger was built."""
    server = start_server("valkey")
    raw = async_client(server)
    async with running(server.url, raw, cluster, Kind()) as replica:
        await replica.lead()
        await raw.aclose()
        server.kill()
        yield replica


@pytest.fixture(params=["aiohttp", "plain"])
async def open_port(request: pytest.FixtureRequest) -> AsyncIterator[OpenPort]:
    """Opens ports that leave everything to aiohttp, or all but plain requests."""
    async with ports(with_plain=request.param == "plain") as open_one:
        yield open_one
