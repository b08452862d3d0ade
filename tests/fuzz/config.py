"""The config reader, given what is hardly a config."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

from autoscale_enforcer.config.scheduler_config import parse_scheduler_config
from autoscale_enforcer.errors import ConfigError
from tests.fuzz.requests import ODD, places

CONFIGS = Path(__file__).parents[1] / "data" / "config"


def read_nonsense(count: int, seed: int) -> tuple[int, int]:
    """How many of so many were refused, and taken; whatever else comes of one is raised."""
    pick, taken = random.Random(seed), 0
    good = [json.loads(file.read_text()) for file in sorted(CONFIGS.glob("*.json"))]
    for _ in range(count):
        content = _nonsense(pick, copy.deepcopy(pick.choice(good)))
        try:
            parse_scheduler_config(content)
        except ConfigError:
            continue
        except Exception as error:
            error.add_note(f"for {content!r}")
            raise
        taken += 1
    return count - taken, taken


def _nonsense(pick: random.Random, document: Any) -> bytes:
    for _ in range(pick.randint(0, 3)):
        found = list(places(document))
        if not found:
            break
        place, key = pick.choice(found)
        if pick.random() < 0.2:
            del place[key]
        else:
            place[key] = copy.deepcopy(pick.choice(ODD))
    content = bytearray(json.dumps(document).encode())
    for _ in range(pick.choice((0, 0, 1, 3))):
        at = pick.randint(0, len(content))
        content[at : at + pick.randint(0, 3)] = pick.randbytes(pick.randint(0, 3))
    return bytes(content)
