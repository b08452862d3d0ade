"""The one line that a replica prints when it answers: written by `serve`, read by `dev`."""

from __future__ import annotations

import msgspec

from autoscale_enforcer.errors import ServiceError


class BoundPorts(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of the three doors."""

    extender: int = 0
    agent: int = 0
    admin: int = 0


class ReplicaPorts(BoundPorts, frozen=True, kw_only=True):
    """Where a replica answers."""

    own: BoundPorts | None = None
    """Those that it shares with no other replica."""


class ReadyLine(msgspec.Struct, frozen=True, kw_only=True):
    """`{"ready": true, "replica": name, "ports": {"extender": ...}}`."""

    ready: bool
    replica: str
    ports: ReplicaPorts

    def encode(self) -> str:
        """As it is printed, without a newline."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, line: bytes) -> ReadyLine:
        """Raises ServiceError for a line that is something else."""
        try:
            return msgspec.json.decode(line, type=cls)
        except msgspec.MsgspecError as error:
            raise ServiceError(f"no ready line: {line!r}") from error
