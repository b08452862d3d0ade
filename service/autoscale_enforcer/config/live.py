"""The scheduler config that holds now; it may change while the process runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoscale_enforcer.config.scheduler_config import (
    DEFAULT_CONFIG,
    SchedulerConfig,
    parse_scheduler_config,
)
from autoscale_enforcer.errors import ConfigError


@dataclass(slots=True)
class LiveConfig:
    """Whoever needs the config asks here each time, and never keeps it."""

    current: SchedulerConfig = DEFAULT_CONFIG
    version: str = ""
    """Version of what it came from: the ConfigMap's, or one that a file has; empty: built in."""
    problems: list[str] = field(default_factory=list)
    """Why the newest config is kept out, path first; empty where it is the current one."""
    refused: int = 0
    """How many were kept out since the start."""

    def offer(self, text: bytes, *, version: str) -> bool:
        """Take a config that has come; a bad one is kept out and what holds stays."""
        try:
            config = parse_scheduler_config(text)
        except ConfigError as error:
            self.refuse(error.problems)
            return False
        self.current, self.version, self.problems = config, version, []
        return True

    def refuse(self, problems: list[str]) -> None:
        """One has come that is kept out, and why; what holds stays."""
        self.problems, self.refused = problems, self.refused + 1
