"""Operators' orders on the admin port: freeze, thaw, release, reconcile.

Each answers what it did, or with `dryRun` what it would do; none decides anything by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from aiohttp import web

from autoscale_enforcer.api.http import json_answer, read_body, text_answer
from autoscale_enforcer.cluster.differences import Difference
from autoscale_enforcer.cluster.release import Released, Releaser
from autoscale_enforcer.cluster.upkeep import ClusterWentBack
from autoscale_enforcer.errors import ClusterUnavailable
from autoscale_enforcer.ledger.calls import Context
from autoscale_enforcer.ledger.freezes import EVERYWHERE, Freeze
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Order
from autoscale_enforcer.wire.orders import OrderRequest, decode_order

log = logging.getLogger(__name__)

BODY = 8 * 1024
"""Bytes of an order at most: two short texts and a name."""

READ_WITHIN = timedelta(seconds=10)

_STARTING = "this replica is starting and cannot ask the cluster yet"


@dataclass(slots=True, kw_only=True)
class OrderDesk:
    """One replica's means to carry out orders. Grants can be stopped before the cluster is open."""

    ledger: Ledger
    replica: str
    releaser: Releaser | None = None
    differences: Callable[[], Awaitable[list[Difference]]] | None = None

    async def freeze(self, request: web.Request) -> web.Response:
        """Stop grants on a node, or everywhere."""
        order = await _read(request, about=("node",))
        word, before = await self.ledger.freeze_grants(
            order.node_name, context=self._context("freeze", order), dry_run=order.dry_run
        )
        if word is Order.NO_NODE:
            return text_answer(404, f"node {order.node} is not known")
        return _answer(order, word, freeze=before and freeze_document(before))

    async def thaw(self, request: web.Request) -> web.Response:
        """End the freeze of a node, or that of everything."""
        order = await _read(request, about=("node",))
        word, ended = await self.ledger.thaw_grants(
            order.node_name, context=self._context("thaw", order), dry_run=order.dry_run
        )
        await self.ledger.mirror.refresh()
        left = self.ledger.mirror.freezes.values()
        others = [each for each in left if each.node != (order.node_name or EVERYWHERE)]
        return _answer(
            order,
            word,
            freeze=ended and freeze_document(ended),
            stillFrozen=[freeze_document(each) for each in others],
        )

    async def release(self, request: web.Request) -> web.Response:
        """Give up what one pod holds."""
        order = await _read(request, about=("pod",))
        name = order.pod_name
        if self.releaser is None:
            raise ClusterUnavailable(_STARTING)
        answer = await self.releaser.release(
            name, context=self._context("release", order), dry_run=order.dry_run
        )
        if answer.outcome is Released.UNKNOWN:
            return text_answer(404, f"pod {name} is not known")
        if answer.outcome is Released.REFUSED:
            return text_answer(409, f"pod {name} keeps what it holds: {answer.words}")
        held = answer.pod.row if answer.pod and answer.outcome is Released.RELEASED else None
        return _answer(
            order,
            answer.outcome,
            why=answer.words,
            held=held
            and {
                "node": held.node,
                "stage": held.stage,
                "cpuMilli": held.cpu,
                "memoryBytes": held.mem,
            },
        )

    async def reconcile(self, request: web.Request) -> web.Response:
        """Ask the leader for a full compare; a dry run compares here and books nothing."""
        order = await _read(request)
        if order.dry_run:
            if self.differences is None:
                raise ClusterUnavailable(_STARTING)
            try:
                differences = await self.differences()
            except ClusterWentBack as error:
                words = f"the cluster went back, a compare would build the ledger anew: {error}"
                return text_answer(409, words)
            return _answer(order, "COMPARED", differences=[asdict(each) for each in differences])
        asked = await self.ledger.ask_compare(context=self._context("reconcile", order))
        return _answer(order, "ASKED", request=str(asked))

    async def compared(self, _: web.Request) -> web.Response:
        """The newest request for a compare, and the newest that was answered."""
        found = await self.ledger.read_compare()
        return _json(
            {
                "asked": str(found.asked),
                "done": str(found.done),
                "replica": found.replica,
                "mended": found.mended,
            }
        )

    def _context(self, verb: str, order: OrderRequest) -> Context:
        if not order.dry_run:
            about = order.node or order.pod or "everything"
            log.warning("%s of %s by %s: %s", verb, about, order.who, order.why)
        return {"replica": self.replica, "verb": verb, "who": order.who, "why": order.why}


def freeze_document(freeze: Freeze) -> dict[str, Any]:
    """A freeze as people and programs read it; `node` is null where it is of everything."""
    since = datetime.fromtimestamp(freeze.since_ms / 1000, UTC)
    return {
        "node": None if freeze.node == EVERYWHERE else freeze.node,
        "since": since.isoformat(timespec="seconds"),
        "who": freeze.who,
        "why": freeze.why,
    }


async def _read(request: web.Request, *, about: tuple[str, ...] = ()) -> OrderRequest:
    return decode_order(await read_body(request, limit=BODY, within=READ_WITHIN), about=about)


def _answer(order: OrderRequest, outcome: str, **more: Any) -> web.Response:
    return _json({"outcome": outcome, "dryRun": order.dry_run, **more})


def _json(document: dict[str, Any]) -> web.Response:
    return json_answer(msgspec.json.encode(document))
