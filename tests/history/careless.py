"""Ledgers that are wrong on purpose, to prove that the checker can fail."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from autoscale_enforcer.ledger.calls import Context
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Reserve, ReserveAnswer
from autoscale_enforcer.ledger.scripts import Script, load_scripts
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.resources import NOTHING
from autoscale_enforcer.model.rows import PodRow
from autoscale_enforcer.policy.fit import SHORT_OF, short_of

CHECK = "elseif short ~= '' then"
"""Where `reserve_pod` refuses what does not fit."""
BETWEEN = 0.003
"""Seconds from the look to the write: long enough for another replica's."""

SHORT_BY_REASON = {reason: short for short, reason in SHORT_OF.items()}

Change = Callable[[Ledger], None]
"""What is made of a ledger."""


def as_it_is(_: Ledger) -> None:
    """The right one."""


def scripts_that_trust_their_caller() -> dict[str, Script]:
    """All scripts, but that reserve takes whatever it is told to."""
    scripts = load_scripts().copy()
    right = scripts["reserve_pod"]
    text = right.text.replace(CHECK, "elseif false then")
    if text == right.text:
        raise AssertionError("reserve_pod has no such check any more")
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return scripts | {"reserve_pod": replace(right, text=text, sha=sha)}


def decide_in_two_calls(ledger: Ledger) -> None:
    """A reserve looks at the node in Redis, decides, and writes in a second call."""
    _decide_by_mirror(ledger, is_fresh=True)


def decide_on_stale_mirror(ledger: Ledger) -> None:
    """A reserve decides by the replica's table of nodes as its last filter left it."""
    _decide_by_mirror(ledger, is_fresh=False)


def _decide_by_mirror(ledger: Ledger, *, is_fresh: bool) -> None:
    write = ledger.reserve_pod

    async def reserve_pod(
        uid: PodUid,
        *,
        node: NodeName,
        said: PodRow | None,
        stamp: int,
        to: Literal["held", "binding"] = "held",
        context: Context | None = None,
    ) -> ReserveAnswer:
        if is_fresh or node not in ledger.mirror.nodes:
            await ledger.mirror.refresh()
        known = await ledger.read_pod(uid=uid)
        wanted = said or (known.row if known else None)
        there = ledger.mirror.nodes[node]
        if wanted and not (known and known.row.stage in ("binding", "bound")):
            is_here = known is not None and known.row.holds and known.row.node == node
            had = known.row.charge if known and is_here else NOTHING
            why = short_of(
                capacity=there.capacity,
                taken=there.reserved - had,
                charge=wanted.overcommit.charge(wanted.amount),
                had=had,
            )
            if why:
                return ReserveAnswer(outcome=Reserve.NO_ROOM, short=SHORT_BY_REASON[why])
        if is_fresh:
            await asyncio.sleep(BETWEEN)
        return await write(uid, node=node, said=said, stamp=stamp, to=to, context=context)

    ledger.reserve_pod = reserve_pod  # type: ignore[method-assign]


def take_any_server_for_good(ledger: Ledger) -> None:
    """The guard looks no more at which server answers."""
    exchange = ledger.pipeline.exchange
    exchange._settings = replace(exchange._settings, watch_replid=False)
