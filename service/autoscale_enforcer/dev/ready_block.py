"""What `dev` shows when everything is up, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from autoscale_enforcer.dev.ports import HOST
from autoscale_enforcer.dev.ready_line import BoundPorts
from autoscale_enforcer.dev.replica_process import ReplicaProcess

_DOORS = ("extender", "agent", "admin")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the replicas answer together."""

    ports: BoundPorts

    @property
    def extender(self) -> str:
        """For kube-scheduler's `urlPrefix` and for `replay`."""
        return f"http://{HOST}:{self.ports.extender}/extender"

    @property
    def agent(self) -> str:
        """For autoscaler-agents."""
        return f"http://{HOST}:{self.ports.agent}"

    @property
    def admin(self) -> str:
        """For `status`, `verify` and a browser."""
        return f"http://{HOST}:{self.ports.admin}"

    def environment(self) -> dict[str, str]:
        """For commands that are run beside the replicas; our own take their options from it."""
        return {
            "AE_EXTENDER_URL": self.extender,
            "AE_AGENT_URL": self.agent,
            "AE_ADMIN_URL": self.admin,
            "AE_EXTENDER": self.extender,  # the option of `replay`
        }


def ready_text(addresses: Addresses, replicas: Sequence[ReplicaProcess]) -> str:
    """The shared addresses and a row for each replica."""
    rows = [("replica", *_DOORS, "process"), *(_row(replica) for replica in replicas)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = (
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )
    return "\n".join(
        [
            "",
            f"Any of {len(replicas)} replicas:",
            f"  extender  {addresses.extender}",
            f"  agents    {addresses.agent}",
            f"  admin     {addresses.admin}",
            "",
            f"One replica, by its own ports on {HOST}; the process may be killed, it comes back:",
            *(f"  {line}" for line in shown),
            "",
            "Ctrl-C stops everything.",
        ]
    )


def _row(replica: ReplicaProcess) -> tuple[str, ...]:
    ports = (str(getattr(replica.ports, door)) for door in _DOORS)
    return (replica.name, *ports, str(replica.process.pid))


def ready_json(addresses: Addresses, replicas: Sequence[ReplicaProcess]) -> str:
    """The same on one line."""
    return json.dumps(
        {
            "ready": True,
            "extender": addresses.extender,
            "agent": addresses.agent,
            "admin": addresses.admin,
            "replicas": [
                {
                    "name": replica.name,
                    "ports": {door: getattr(replica.ports, door) for door in _DOORS},
                    "pid": replica.process.pid,
                }
                for replica in replicas
            ],
        }
    )
