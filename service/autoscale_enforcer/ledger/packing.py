"""Commands as the bytes that Redis reads; what is the same in each run of a script is made once."""

from __future__ import annotations

from collections.abc import Sequence

import hiredis

from autoscale_enforcer.ledger.keys import Keys
from autoscale_enforcer.ledger.scripts import Script

Value = str | bytes | int
Command = tuple[Value, ...]


def pack_command(command: Command) -> bytes:
    """One command."""
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # of any length
    return packed


class Packer:
    """Packs runs of scripts on the keys of one ledger."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._heads: dict[tuple[str, bool], tuple[bytes, int]] = {}

    def run(self, script: Script, arguments: Sequence[Value], *, building: bool = False) -> bytes:
        """The script on the books; with `building` on the keys beside them."""
        found = self._heads.get((script.sha, building))
        if found is None:
            found = self._heads[script.sha, building] = self._head(script, building=building)
        head, skipped = found
        return head + pack_command(tuple(arguments))[skipped:]

    def _head(self, script: Script, *, building: bool) -> tuple[bytes, int]:
        """All that comes before the arguments, and how much the arguments' own count takes."""
        keys = self._keys.keys(script.key_names, building=building)
        fixed: Command = ("EVALSHA", script.sha, len(keys), *keys)
        count = len(script.arg_names)
        packed = pack_command(fixed).removeprefix(_count(len(fixed)))
        return _count(len(fixed) + count) + packed, len(_count(count))


def _count(items: int) -> bytes:
    return b"*%d\r\n" % items
