"""Loopback ports for servers that are told where to listen."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


def free_port() -> int:
    """A loopback port that nobody else takes before its server listens, or while it is gone: below
    those that the kernel gives to outgoing connections, never the same twice, and no other test
    process is given it. Always five digits.
    """
    for port in _own_ports():
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("this process has used up its ports")


@functools.cache
def _own_ports() -> Iterator[int]:
    """A thousand that are this process's for as long as it lives."""
    for start in range(12_000, 32_000, 1000):
        file = (Path(tempfile.gettempdir()) / f"ae-ports-{start}").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            continue
        _LOCKS.append(file)
        return iter(range(start, start + 1000))
    raise RuntimeError("twenty other processes have all ports")


_LOCKS: list[IO[str]] = []
"""Kept open, so kept."""
