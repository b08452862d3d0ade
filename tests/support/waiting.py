"""Waiting for what other processes do in their own time."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; pytest's time limit ends the wait."""
    while not condition():
        time.sleep(0.01)
