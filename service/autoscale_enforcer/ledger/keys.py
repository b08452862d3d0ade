"""The keys of the ledger; spelled here and nowhere else.

All of a cluster's keys share one hash tag, so that every script runs in one slot of a Redis
Cluster and several Kubernetes clusters share one Redis. ARCHITECTURE.md has the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass

BOOKS = (
    "nodes",
    "pods",
    "names",
    "facts",
    "changes",
    "deadlines",
    "gone",
    "meta",
    "journal",
)
"""Keys that a build replaces, the journal apart."""

LEASE = "lease"
FREEZES = "freezes"
COMPARE = "compare"
"""What operators ask for."""
BINDINGS = "bindings"
"""File source only: what an API server would hold of Bindings."""

BESIDE = (LEASE, FREEZES, COMPARE, BINDINGS)
"""Keys that a build leaves alone."""

_NEW = "new_"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one Kubernetes cluster's ledger."""

    cluster: str

    def key(self, name: str) -> str:
        """The key of that name; `new_…` is the one beside it that a build loads into."""
        if name.startswith(_NEW):
            return f"ae:{{{self.cluster}}}:new:{_known(name[len(_NEW) :])}"
        return f"ae:{{{self.cluster}}}:{_known(name)}"

    def keys(self, names: tuple[str, ...], *, building: bool = False) -> list[str]:
        """The keys for a script's KEYS, in its order; `building`: those that a build loads into."""
        return [self.key(_NEW + name if building else name) for name in names]

    def all(self) -> list[str]:
        """Every key that the ledger may have."""
        return [self.key(n) for n in (*BOOKS, *BESIDE, *(_NEW + b for b in BOOKS))]


def _known(name: str) -> str:
    if name not in (*BOOKS, *BESIDE):
        raise ValueError(f"no key is named {name!r}")
    return name
