"""What is made from files that may be replaced while we run: certificates, passwords, tokens.

Nothing watches: each use looks at the files, which costs one `stat` each. Any layer may use it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

Made = TypeVar("Made")

_Fingerprint = tuple[tuple[int, int, int, int], ...]


class Watched(Generic[Made]):
    """`current()` is what `make` makes of the files, made anew once one of them has changed.

    `make` reads the files itself. The first time runs at once, and its error is the caller's.
    Later ones are logged and kept in `problem`, and what was made last stands: a certificate may
    be replaced before its key. A mounted Secret, whose files are links, is followed.
    """

    def __init__(self, make: Callable[[], Made], *files: Path) -> None:
        self._make, self._files = make, files
        self._seen = _look(files)
        self._reported: tuple[_Fingerprint | None, str] = (None, "")
        self._made = make()
        self.problem = ""
        """Why the files as they are now cannot be used; empty: they are in use."""

    def current(self) -> Made:
        """As of the files now, or of the last time that they could be used."""
        # Looked at before they are read: what is written meanwhile is noticed the next time.
        found = _look(self._files)
        if found == self._seen and found is not None:
            self.problem = ""
            return self._made
        try:
            self._made = self._make()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with them, the old one stands
            self._report(found, str(error) or repr(error))
        else:
            self._seen, self.problem = found, ""
            log.info("%s: read anew", self._names())
        return self._made

    def _report(self, found: _Fingerprint | None, problem: str) -> None:
        self.problem = problem
        if self._reported != (found, problem):
            self._reported = (found, problem)
            log.error("%s: cannot be used, what was read before stays: %s", self._names(), problem)

    def _names(self) -> str:
        return ", ".join(str(file) for file in self._files)


def _look(files: tuple[Path, ...]) -> _Fingerprint | None:
    """What tells these files from others; None where one is missing."""
    try:
        found = [file.stat() for file in files]
    except OSError:
        return None
    return tuple((s.st_dev, s.st_ino, s.st_mtime_ns, s.st_size) for s in found)
