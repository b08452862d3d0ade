"""The manifests of each overlay, read once."""

from __future__ import annotations

import pytest

from tests.support.manifests import OVERLAYS, Object, read


@pytest.fixture(scope="session", params=OVERLAYS)
def manifests(request: pytest.FixtureRequest) -> list[Object]:
    """Every object of an overlay; not to be changed."""
    return read(request.param)
