"""The Go extender of `bench/peer`, built once and kept in the user's cache."""

from __future__ import annotations

from pathlib import Path

from tests.support.go_modules import GoModule

_FOLDER = Path(__file__).parent / "peer"

PEER = GoModule(
    folder=_FOLDER,
    name="bench",
    packages={"peer": "."},
    sources=["go.mod", "go.sum", *sorted(each.name for each in _FOLDER.glob("*.go"))],
)
"""No flags and no settings of the collector: it is measured as Go makes it by default."""


def peer_binary() -> Path:
    """Raises GoError where it cannot be built."""
    return PEER.build() / "peer"
