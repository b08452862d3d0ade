"""The fake API server in a process of its own, so that it takes no time from what is measured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).parents[3]


@contextmanager
def fake_api_process(
    *, nodes: int = 0, pods: int = 0, events_per_second: float = 0, objects: Path | None = None
) -> Iterator[tuple[str, int]]:
    """Address and process id of a server with so many nodes and heavy pods; 150,000 take some 10 s.

    Each event stamps one pod's annotation `changed-at` with the epoch time in seconds. `objects` is
    a file with a JSON list of what else is there, each with its kind and, if it is named, its UID.
    """
    command = [sys.executable, "-m", "tests.support.fake_api"]
    command += ["--nodes", str(nodes), "--pods", str(pods)]
    command += ["--events-per-second", str(events_per_second)]
    command += ["--objects", str(objects)] if objects else []
    with subprocess.Popen(
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.stdin.close()
            process.wait()
