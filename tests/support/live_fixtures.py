"""Fixtures over the fake API server: for a conftest to import."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from tests.support.fake_api.server import FakeApi
from tests.support.live import Live, StartLive, cluster, starting


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """A cluster of n1."""
    async with FakeApi() as server:
        yield cluster(server)


@pytest.fixture
async def start_live(
    api: FakeApi, redis_url: str, raw_client: redis.asyncio.Redis
) -> AsyncIterator[StartLive]:
    """`await start_live(**kind)`: one more replica over the same ledger and cluster."""
    async with starting(api, redis_url, raw_client) as start:
        yield start


@pytest.fixture
async def live(start_live: StartLive) -> Live:
    """Leading, its ledger built."""
    live = await start_live()
    await live.lead()
    return live
