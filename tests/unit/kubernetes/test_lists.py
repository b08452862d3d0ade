"""A whole list, page after page: the next one is made while this one is read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
import pytest

from autoscale_enforcer.cluster.kubernetes import answers
from autoscale_enforcer.cluster.kubernetes.answers import BareObject, Page, read_page
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.lists import read_whole
from autoscale_enforcer.cluster.kubernetes.paths import PODS
from autoscale_enforcer.errors import ClusterUnavailable
from autoscale_enforcer.objects.shapes import Metadata


def named(*names: str) -> list[BareObject]:
    return [BareObject(metadata=Metadata(name=name)) for name in names]


class Pages:
    """An API server that gives these, and then fails where it is told to."""

    def __init__(self, *pages: list[BareObject], failure: Exception | None = None) -> None:
        self.pages, self.failure = pages, failure
        self.asked = 0
        self.is_closed = False

    async def list_pages(self, *_: Any, **__: Any) -> AsyncGenerator[Page[BareObject], None]:
        try:
            for items in self.pages:
                self.asked += 1
                yield Page(items, [], "7", begins=self.asked == 1)
            if self.failure:
                raise self.failure
        finally:
            self.is_closed = True

    @property
    def api(self) -> KubeApi:
        this: Any = self
        return cast("KubeApi", this)


async def test_the_next_page_is_asked_for_before_this_one_is_read() -> None:
    pages = Pages(named("a", "b"), named("c"))
    asked: dict[str, int] = {}

    def read(item: BareObject) -> str:
        name = (item.metadata and item.metadata.name) or ""
        asked[name] = pages.asked
        return name

    listing = await read_whole(pages.api, PODS, BareObject, read)

    assert listing.items == ["a", "b", "c"]
    assert asked == {"a": 2, "b": 2, "c": 2}
    assert pages.is_closed


async def test_a_page_that_does_not_come_fails_the_list() -> None:
    pages = Pages(named("a"), failure=ClusterUnavailable("away"))

    with pytest.raises(ClusterUnavailable, match="away"):
        await read_whole(pages.api, PODS, BareObject, lambda item: item)

    assert pages.is_closed


async def test_a_reader_that_fails_leaves_no_page_under_way() -> None:
    pages = Pages(named("a"), named("b"), named("c"))

    def read(item: BareObject) -> None:
        raise ValueError(item)

    with pytest.raises(ValueError, match="a"):
        await read_whole(pages.api, PODS, BareObject, read)

    assert pages.is_closed


BODY = {
    "metadata": {"resourceVersion": "7", "continue": "more"},
    "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}],
}


@pytest.mark.parametrize("at_once", [0, 1000], ids=["one by one", "at once"])
async def test_a_page_is_the_same_whichever_way_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(answers, "READ_AT_ONCE", at_once)

    page = await read_page("list", msgspec.json.encode(BODY), BareObject, begins=True)

    assert page == Page(named("a", "b"), [], "7", begins=True, next_page="more")


async def test_one_object_that_cannot_be_read_costs_no_other() -> None:
    body = BODY | {"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": 3, "uid": "u"}}]}

    page = await read_page("list", msgspec.json.encode(body), BareObject, begins=False)

    assert page.items == named("a")
    assert [bad.uid for bad in page.bad] == ["u"]
    assert (page.resource_version, page.next_page, page.begins) == ("7", "more", False)
