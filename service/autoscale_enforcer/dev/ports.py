"""The three shared ports: found or checked, and held so that nobody else takes them."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from autoscale_enforcer.dev.ready_line import BoundPorts
from autoscale_enforcer.errors import ServiceError

HOST = "127.0.0.1"
"""All of `dev` stays on this machine."""


class PortTaken(ServiceError):
    """A port that was asked for cannot be had."""


@contextmanager
def hold_ports(wanted: BoundPorts) -> Iterator[BoundPorts]:
    """The same ports, with a free one for each 0, kept from other programs inside the block.

    They are bound and never listened on, so that the kernel hands every connection to a replica.
    Raises PortTaken, also where another `dev`'s replicas would share the port.
    """
    with ExitStack() as stack:
        held = {
            door: _hold(door, getattr(wanted, door), stack)
            for door in ("extender", "agent", "admin")
        }
        yield BoundPorts(**held)


def _hold(door: str, port: int, stack: ExitStack) -> int:
    try:
        if port:
            _refuse_taken(port)
        holder = _holder(port)
    except OSError as error:
        raise PortTaken(_words(door, port, error)) from error
    stack.callback(holder.close)
    return int(holder.getsockname()[1])


def _refuse_taken(port: int) -> None:
    # Without SO_REUSEPORT, which would let us in beside replicas of somebody else.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))


def _holder(port: int) -> socket.socket:
    holder = socket.socket()
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Closed connections of an earlier server may linger there for a minute.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1 if port else 0)
        holder.bind((HOST, port))
    except OSError:
        holder.close()
        raise
    return holder


def _words(door: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        reason = "is in use by another program, or another dev"
    else:
        reason = f"cannot be used: {error.strerror}"
    return f"port {port} {reason}: give another with --{door}-port, or 0 for any free one"
