"""People's front door, port 9100: what the ledger says, and whether this replica is well.

Whatever is no read needs the admin token. Machines judge `/livez` and `/readyz` by the status
alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from autoscale_enforcer.api.change_rights import changes_need_token
from autoscale_enforcer.api.explaining import amounts, explanation
from autoscale_enforcer.api.http import application, json_answer, text_answer
from autoscale_enforcer.api.metrics import CONTENT_TYPE as METRICS_CONTENT_TYPE
from autoscale_enforcer.api.metrics import Metrics
from autoscale_enforcer.api.one_at_a_time import OneAtATime
from autoscale_enforcer.api.order_desk import OrderDesk, freeze_document
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.errors import LedgerUnavailable
from autoscale_enforcer.ledger.kept import unpack_fact
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.mirror import Mirror
from autoscale_enforcer.ledger.reading import find_breaches
from autoscale_enforcer.model.ids import NodeName, pod_name
from autoscale_enforcer.model.rows import NodeRow, PodRow
from autoscale_enforcer.turns import Turns

ANSWER_WITHIN = timedelta(seconds=60)
"""For an answer about the whole ledger; `autoscale-enforcer verify` waits a little longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What this replica says of itself, whatever Redis does."""

    is_stopping: Callable[[], bool] = lambda: False
    is_starting: Callable[[], bool] = lambda: False


def admin_app(
    ledger: Ledger,
    *,
    replica: str,
    health: Health | None = None,
    config: LiveConfig | None = None,
    metrics: Metrics | None = None,
    orders: OrderDesk | None = None,
    token_file: Path | None = None,
) -> web.Application:
    """Probes and metrics under `/`, JSON under `/api/v1/`.

    Whoever wants to change something must send the token in `token_file`; without it nobody may.
    """
    app = application(replica, checks=[changes_need_token(token_file)])
    doors = _Doors(ledger, health or Health(), config or LiveConfig(), metrics or Metrics())
    app.on_cleanup.append(doors.close)
    app.router.add_get("/livez", doors.livez)
    app.router.add_get("/readyz", doors.readyz)
    app.router.add_get("/healthz", doors.readyz)
    app.router.add_get("/metrics", doors.metrics)
    app.router.add_get("/api/v1/nodes", doors.nodes)
    app.router.add_get("/api/v1/nodes/{name}", doors.node)
    app.router.add_get("/api/v1/pods/{namespace}/{name}", doors.pod)
    app.router.add_get("/api/v1/explain/{namespace}/{name}", doors.explain)
    app.router.add_get("/api/v1/verify", doors.verify)
    if orders:
        app.router.add_post("/api/v1/freeze", orders.freeze)
        app.router.add_post("/api/v1/thaw", orders.thaw)
        app.router.add_post("/api/v1/release", orders.release)
        app.router.add_post("/api/v1/reconcile", orders.reconcile)
        app.router.add_get("/api/v1/reconcile", orders.compared)
    return app


class _Doors:
    def __init__(
        self,
        ledger: Ledger,
        health: Health,
        config: LiveConfig,
        metrics: Metrics,
    ) -> None:
        self._ledger, self._health = ledger, health
        self._config, self._metrics = config, metrics
        self.table = OneAtATime("node table", self._nodes, ANSWER_WITHIN)
        self.verifying = OneAtATime("verify", self._verify, ANSWER_WITHIN)

    async def livez(self, _: web.Request) -> web.Response:
        """The process answers; nothing else is asked, for a restart would mend nothing else."""
        return text_answer(200, "ok")

    async def readyz(self, _: web.Request) -> web.Response:
        """The ledger is built, and a grant made now could be told."""
        if self._health.is_stopping():
            return text_answer(503, "stopping")
        if self._health.is_starting():
            return text_answer(503, "starting")
        guard = await self._ledger.look(as_a_promise=True)
        if guard.why_not:
            return text_answer(503, guard.why_not)
        if guard.state == "UNBUILT":
            return text_answer(503, "the ledger is not built")
        return text_answer(200, "ok")

    async def metrics(self, _: web.Request) -> web.Response:
        """For Prometheus; the ledger is looked at, where it can be."""
        with suppress(LedgerUnavailable):
            mirror = await self._mirror()
            self._metrics.note_freezes(mirror.freezes)
        return web.Response(
            body=self._metrics.text(), headers={"Content-Type": METRICS_CONTENT_TYPE}
        )

    async def nodes(self, _: web.Request) -> web.Response:
        """Every node of the ledger, and the config they are judged by."""
        return json_answer(await self.table.answer())

    async def _nodes(self) -> bytes:
        mirror, turns, nodes = await self._mirror(), Turns(), []
        for name, row in sorted(mirror.nodes.items()):
            nodes.append(msgspec.Raw(msgspec.json.encode(node_document(mirror, name, row))))
            await turns.pause()
        return msgspec.json.encode(
            {
                "nodes": nodes,
                "config": {
                    "format": self._config.current.format,
                    "version": self._config.version,
                    "problems": self._config.problems,
                },
                "freezes": [freeze_document(each) for each in mirror.freezes.values()],
            }
        )

    async def node(self, request: web.Request) -> web.Response:
        """One node."""
        mirror = await self._mirror()
        name = NodeName(request.match_info["name"])
        row = mirror.nodes.get(name)
        if row is None:
            return text_answer(404, f"node {name} is not known")
        return _json(node_document(mirror, name, row))

    async def pod(self, request: web.Request) -> web.Response:
        """One pod, by namespace and name."""
        name = pod_name(request.match_info["namespace"], request.match_info["name"])
        known = await self._ledger.read_pod(name=name)
        if known is None:
            return text_answer(404, f"pod {name} is not known")
        fact = unpack_fact(known)
        return _json(
            {"uid": known.uid, **pod_document(known.row), "problem": fact.problem if fact else ""}
        )

    async def explain(self, request: web.Request) -> web.Response:
        """What filter would say of one pod, on every node or on one, with numbers."""
        name = pod_name(request.match_info["namespace"], request.match_info["name"])
        known = await self._ledger.read_pod(name=name)
        if known is None:
            return text_answer(404, f"pod {name} is not known")
        fact = unpack_fact(known)
        document = explanation(await self._mirror(), known.row)
        if node := request.query.get("node"):
            document["nodes"] = [each for each in document["nodes"] if each["name"] == node]
            if not document["nodes"]:
                return text_answer(404, f"node {node} is not known")
        problem = fact.problem if fact else ""
        return _json({"uid": known.uid, **pod_document(known.row), "problem": problem, **document})

    async def verify(self, _: web.Request) -> web.Response:
        """Everything that does not hold of the ledger."""
        return json_answer(await self.verifying.answer())

    async def _verify(self) -> bytes:
        found = await find_breaches(self._ledger)
        return msgspec.json.encode({"breaches": [asdict(breach) for breach in found]})

    async def close(self, _: web.Application) -> None:
        """End what is under way."""
        await asyncio.gather(self.table.close(), self.verifying.close())

    async def _mirror(self) -> Mirror:
        await self._ledger.mirror.refresh()
        return self._ledger.mirror


def node_document(mirror: Mirror, name: NodeName, row: NodeRow) -> dict[str, Any]:
    """A node as people and programs read it."""
    return {
        "name": name,
        "capacity": amounts(row.capacity),
        "reserved": amounts(row.reserved),
        "committed": amounts(row.committed),
        "ignored": amounts(row.ignored),
        "pressure": amounts(row.pressure),
        "migrating": amounts(row.migrating),
        "pods": row.pods,
        "overCapacity": row.over_capacity,
        "absent": bool(row.absent),
        "unsettled": mirror.is_unsettled(row),
        "frozen": mirror.is_frozen(name),
        "version": row.version,
    }


def pod_document(row: PodRow) -> dict[str, Any]:
    """A pod's hold as people and programs read it."""
    return {
        "name": row.name,
        "node": row.node if row.holds else None,
        "stage": row.stage,
        "vm": bool(row.vm),
        "autoscaling": bool(row.scaled),
        "amount": amounts(row.amount),
        "charge": amounts(row.charge),
        "asked": amounts(row.asked),
        "ignored": bool(row.ignored),
        "resourceVersion": row.rv,
    }


def _json(document: dict[str, Any]) -> web.Response:
    return json_answer(msgspec.json.encode(document))
