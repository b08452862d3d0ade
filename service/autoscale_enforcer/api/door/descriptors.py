"""File descriptors: each connection costs one, and a process that has none left accepts nobody."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

BESIDES = 256
"""For everything else: Redis, the API server, files, a margin."""


def allow_descriptors(connections: int) -> None:
    """Raise this process' own limit as far as so many connections need; a warning where it may not
    be raised so far.
    """
    wanted = connections + BESIDES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        words = (
            "%d connections at all ports need %d open files, but only %d are allowed (ulimit -n)"
        )
        log.warning(words, connections, wanted, allowed)
