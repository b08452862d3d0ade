from __future__ import annotations

import pytest
import trustme
from tests.support.live_fixtures import api, live, start_live

__all__ = ["api", "live", "start_live"]


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()
