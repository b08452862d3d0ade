"""Reads a whole list, each object into what its reader makes of it; others run meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

from autoscale_enforcer.cluster.kubernetes.answers import K, Listing, Page, bad_version
from autoscale_enforcer.cluster.kubernetes.client import PAGE_SIZE, KubeApi
from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.turns import Turns

_DROPPED = 1000

T = TypeVar("T")


async def read_whole(
    api: KubeApi,
    path: str,
    kind: type[K],
    read: Callable[[K], T],
    *,
    page_size: int = PAGE_SIZE,
    on_page: Callable[[], None] = lambda: None,
) -> Listing[T]:
    """The list as it is now; objects of which `read` makes no sense are among its bad ones.

    No read of the budget: whoever asks for whole lists paces itself. Raises as `list_pages`.
    """
    listing: Listing[T] = Listing()
    pages = api.list_pages(path, kind, limit=page_size, metered=False)
    async with aclosing(pages), aclosing(_one_ahead(pages)) as ahead:
        async for page in ahead:
            if page.begins:
                listing = Listing(resource_version=page.resource_version)
            await _read_page(page, listing, read)
            on_page()
    return listing


async def _one_ahead(
    pages: AsyncGenerator[Page[K], None],
) -> AsyncGenerator[Page[K], None]:
    """The same pages; the API server makes the next one while this one is read."""
    coming = asyncio.ensure_future(anext(pages, None))
    try:
        while page := await coming:
            coming = asyncio.ensure_future(anext(pages, None))
            await asyncio.sleep(0)  # It is asked for now, not after what the reader does first.
            yield page
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


async def _read_page(page: Page[K], listing: Listing[T], read: Callable[[K], T]) -> None:
    turns = Turns()
    listing.bad += page.bad
    for item in page.items:
        try:
            listing.items.append(read(item))
        except ObjectError as error:
            listing.bad.append(bad_version(item.metadata, error, None))
        await turns.pause()


async def drop(listing: Listing[T]) -> None:
    """Empty a list: 150,000 objects dropped at once would keep the loop busy for 0.2 s."""
    turns = Turns()
    while listing.items:
        del listing.items[-_DROPPED:]
        await turns.pause()
