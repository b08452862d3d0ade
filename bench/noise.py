"""What the machine did besides: so that a figure is believed as far as it deserves."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 12):
    from typing import override
else:
    from typing_extensions import override

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Noise:
    """Over one round."""

    load: float
    """Processes that ran or wanted to, over the last minute; ours are among them."""
    stolen: float
    """Share of all cores' time that the machine's host gave to others."""
    others: float
    """Cores that were busy with neither the programs of the bench nor with us."""
    waited: float
    """Seconds that those programs and we were ready to run and did not, for each second. One waits
    for the other where cores are few: it is never 0 then."""

    @override
    def __str__(self) -> str:
        return (
            f"load {self.load:.1f}, other work {self.others:.2f} cores,"
            f" stolen {100 * self.stolen:.0f} %, waited {self.waited:.2f} s/s"
        )


class Watched:
    """Measures from when it is made until `noise` is called."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = [*pids, os.getpid()]
        self._began, self._before = time.monotonic(), _reading(self._pids)

    def noise(self, *started: int) -> Noise:
        """Since it was made; `started` are programs of the bench that have begun since."""
        took = time.monotonic() - self._began
        readings = zip(_reading([*self._pids, *started]), self._before, strict=True)
        busy, stolen, used, waited = (after - before for after, before in readings)
        return Noise(
            load=os.getloadavg()[0],
            stolen=stolen / took / (os.cpu_count() or 1),
            others=max(busy - used, 0.0) / took,
            waited=waited / took,
        )


def _reading(pids: Sequence[int]) -> tuple[float, float, float, float]:
    """Seconds: all cores busy, stolen, used by those processes, and waited for by them."""
    fields = [
        int(each) / _TICK for each in Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    ]
    user, nice, system, _, _, interrupts, soft, stolen = fields[:8]
    used = waited = 0.0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            ran, ready = task.read_text().split()[:2]
            used, waited = used + int(ran) / 1e9, waited + int(ready) / 1e9
    return user + nice + system + interrupts + soft, stolen, used, waited


def memory_kib(pid: int, what: str = "VmRSS") -> int:
    """A process's memory; `VmHWM` is the most that it ever was."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1])
    raise ValueError(f"no {what} of {pid}")
