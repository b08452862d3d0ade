"""A history: each call of each client, when it was made, and what came of it, a JSON line each.

Times are nanoseconds of the machine's monotonic clock, so the files of several processes on one
machine make one history. A line is written when the call ends, whatever order that is; a call that
is never answered is written when its client gives it up, or at `close`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from autoscale_enforcer.model.resources import NOTHING, Resources


class Op(StrEnum):
    """What was asked, or what happened without anybody asking."""

    RESERVE = "reserve"
    """`pod` on `node`, in `asked` amounts."""
    UNRESERVE = "unreserve"
    BIND = "bind"
    """`pod` to `node`; `asked` is what the pod needs, though the call carries no amounts."""
    REQUEST = "request"
    """The agent of VM `pod` on `node` asks for `asked`, in steps of `factor`; `last` is its
    lastPermit. Granted: `told`.
    """
    FILTER = "filter"
    """`seen` has the reason for each offered node, "" where `pod` with `asked` passes."""
    READ = "read"
    """`/api/v1/nodes`: `seen` has a `NodeSeen` for each node."""
    NODE = "node"
    """Fact: `node` has the capacity `asked` from some time in the interval on."""
    BOUND = "bound"
    """Fact: the cluster has `pod` bound to `node` with `asked`; `most` is the VM's maximum, and
    nothing where the amount is no permit.
    """
    GONE = "gone"
    """Fact: `pod`, which was or may be on `node`, is deleted or finished."""
    EPOCH = "epoch"
    """Another server may answer for the books: they are suspect until each node is settled.
    Where `lost_since` is given, tentative holds that were acknowledged since then may be missing;
    a release that was lost is not understood, so leave no such history to be judged. With
    `is_wiped` they were emptied or built anew, from the cluster, which knows no tentative hold.
    """


class Outcome(StrEnum):
    """What the client knows."""

    DONE = "done"
    """It has taken effect, or was so already."""
    REFUSED = "refused"
    """It has changed nothing; `reason` says why."""
    UNKNOWN = "unknown"
    """It may take effect at any later time, or never. The default until an answer comes."""


Pair = tuple[int, int]
"""Millicores and bytes."""


class NodeSeen(msgspec.Struct, frozen=True, gc=False):
    """One node, as `/api/v1/nodes` shows it."""

    capacity: Pair
    reserved: Pair
    pods: int
    unsettled: bool = False


class Operation(msgspec.Struct, omit_defaults=True, gc=False, kw_only=True):
    """One line. What an operation has no use for is left at its default."""

    op: Op
    client: int
    id: int
    """Unique among the operations of one client."""
    invoked: int
    answered: int | None = None
    """None: never, as far as anybody knows."""
    given_up: int | None = None
    """When its client had an error, or waited no more; with `replica`, it was that one's error."""
    outcome: Outcome = Outcome.UNKNOWN
    pod: str = ""
    """UID."""
    node: str = ""
    asked: Pair = (0, 0)
    version: int = 0
    """resourceVersion of the pod that `asked` is from."""
    factor: Pair = (0, 0)
    last: Pair = (0, 0)
    most: Pair = (0, 0)
    told: Pair = (0, 0)
    reason: str = ""
    seen: dict[str, str | NodeSeen] | None = None
    replica: str = ""
    """X-Replica of the answer."""
    durable: bool = False
    """Told only after a replica of Redis had it: no promotion may lose it."""
    lost_since: int | None = None
    is_wiped: bool = False


@dataclass(slots=True)
class Call:
    """An operation that is going on. End it once; a second end changes nothing."""

    operation: Operation
    _end: Callable[[Operation], None]

    @property
    def is_answered(self) -> bool:
        """Its client knows what came of it, or that nothing did."""
        return self.operation.outcome is not Outcome.UNKNOWN

    def done(self, *, replica: str = "", told: Resources = NOTHING) -> None:
        """It has taken effect; `told` is the permit."""
        self.operation.told = (told.cpu, told.mem)
        self._finish(Outcome.DONE, replica)

    def saw(self, seen: Mapping[str, str | NodeSeen], *, replica: str = "") -> None:
        """What a read has shown, by node."""
        self.operation.seen = dict(seen)
        self._finish(Outcome.DONE, replica)

    def refused(self, reason: str, *, replica: str = "") -> None:
        """It has surely changed nothing. Where that is not sure, it is `unknown`."""
        self.operation.reason = reason
        self._finish(Outcome.REFUSED, replica)

    def unknown(self, why: str, *, replica: str = "") -> None:
        """Time-out, lost connection, an error that may hide a change: no answer at all."""
        self.operation.reason = why
        self._finish(Outcome.UNKNOWN, replica)

    def _finish(self, outcome: Outcome, replica: str) -> None:
        self.operation.outcome, self.operation.replica = outcome, replica
        self._end(self.operation)


class Recorder:
    """Appends a history to a file; cheap enough for a million operations. `close` it after use.

    For one process. Not safe to share between threads.
    """

    def __init__(
        self,
        path: Path,
        *,
        durable: bool = False,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._file = path.open("ab", buffering=1 << 20)
        self._durable, self._clock = durable, clock
        self._encoder = msgspec.json.Encoder()
        self._going_on: dict[tuple[int, int], Operation] = {}
        self._ids = 0
        self.written = 0
        """Operations that have ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def invoke(self, op: Op, *, client: int, **fields: Any) -> Call:
        """The client makes this call now; `fields` are those of `Operation`."""
        self._ids += 1
        operation = Operation(
            op=op,
            client=client,
            id=self._ids,
            invoked=self._clock(),
            durable=self._durable,
            **fields,
        )
        self._going_on[client, operation.id] = operation
        return Call(operation, self._ended)

    def known(self, op: Op, **fields: Any) -> None:
        """A fact that everybody knows from now on: a node, a pod that is bound already."""
        self.invoke(op, client=CLUSTER, **fields).done()

    def happens(self, op: Op, **fields: Any) -> Call:
        """A fact that the service will hear of; `done` when something shows that it has."""
        return self.invoke(op, client=CLUSTER, **fields)

    def write(self, operation: Operation) -> None:
        """One that has ended, as it is: for histories that were not lived through."""
        self._file.write(self._encoder.encode(operation) + b"\n")
        self.written += 1

    def close(self) -> None:
        """Write what is still going on as never answered, and everything to the disk."""
        if self._file.closed:
            return
        for operation in list(self._going_on.values()):
            self._ended(operation)
        self._file.close()

    def _ended(self, operation: Operation) -> None:
        if self._going_on.pop((operation.client, operation.id), None) is None:
            return
        if operation.outcome is Outcome.UNKNOWN:
            operation.given_up = self._clock()
        else:
            operation.answered = self._clock()
        self.write(operation)


CLUSTER = -1
"""The client number of facts and events."""


def read_history(paths: Iterable[Path]) -> list[Operation]:
    """All operations of the files, in the order of their calls.

    ValueError names the file and the line of what is no operation. A last line that was cut off,
    by a client that was killed, is left out.
    """
    operations = [operation for path in paths for operation in _read(path)]
    operations.sort(key=lambda each: each.invoked)
    return operations


def _read(path: Path) -> Iterator[Operation]:
    decoder = msgspec.json.Decoder(Operation)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                operation = decoder.decode(line)
            except msgspec.DecodeError as error:
                raise ValueError(f"{path}:{number}: {error}") from error
            # A million operations name a few thousand pods and nodes.
            operation.pod, operation.node = sys.intern(operation.pod), sys.intern(operation.node)
            operation.replica = sys.intern(operation.replica)
            operation.reason = sys.intern(operation.reason)
            yield operation
