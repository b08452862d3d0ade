"""What came back of a call, and what it says: done, surely not done, or nobody knows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from autoscale_enforcer.policy.fit import Reason
from tests.history.record import Call

SETTLED_REFUSALS = {str(reason) for reason in Reason}
"""Words after which nothing has changed; anything else may have."""


@dataclass(slots=True)
class Answer:
    """What came back; status 0: nothing did, status -1: nobody was there to be asked."""

    status: int
    body: bytes
    replica: str = ""
    url: str = ""
    """That was asked."""

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def why(self) -> str:
        return f"{self.status} {self.body[:120].decode(errors='replace')}"


def give_up(call: Call, answer: Answer) -> None:
    """End a call that was not answered, or not clearly."""
    if answer.status == -1:
        call.refused("nobody listens")
    else:
        call.unknown(answer.why, replica=answer.replica)


def end_reserve(call: Call, answer: Answer) -> bool:
    """End a reserve or unreserve by its answer; True where it was done."""
    if answer.status != 200:
        give_up(call, answer)
        return False
    said = answer.json
    why = "".join(said["Reasons"] or [])
    if said["Code"] == "Success":
        call.done(replica=answer.replica)
        return True
    if why in SETTLED_REFUSALS:
        call.refused(why, replica=answer.replica)
    else:
        call.unknown(why, replica=answer.replica)
    return False


def end_bind(call: Call, answer: Answer) -> bool:
    """End a bind by its answer; True where it was done."""
    if answer.status != 200:
        give_up(call, answer)
        return False
    error = answer.json["Error"]
    if not error:
        call.done(replica=answer.replica)
    elif error in SETTLED_REFUSALS:
        call.refused(error, replica=answer.replica)
    else:
        call.unknown(error, replica=answer.replica)
    return not error
