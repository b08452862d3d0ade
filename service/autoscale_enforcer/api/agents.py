"""The autoscaler-agents' front door, port 10299: `POST /` asks for a permit.

An agent that gets anything but a 200 keeps its last permit, which is safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Middleware

from autoscale_enforcer.api.door.plain_connection import Plain
from autoscale_enforcer.api.http import (
    Count,
    application,
    in_time,
    json_answer,
    read_body,
    text_answer,
)
from autoscale_enforcer.api.plain import plain_port
from autoscale_enforcer.cluster.learner import PodLearner
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.config.settings import LimitSettings
from autoscale_enforcer.errors import LedgerUnavailable, NotFound, WireError
from autoscale_enforcer.ledger.kept import unpack_fact
from autoscale_enforcer.ledger.ledger import Ledger
from autoscale_enforcer.ledger.outcomes import Permit, PermitAnswer
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import PodName
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.time_limit import TimeLimit
from autoscale_enforcer.wire.agent import decode_agent_request, encode_agent_answer
from autoscale_enforcer.wire.agent_request import AgentRequest
from autoscale_enforcer.wire.protocol import effective_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDesk:
    """One replica's means to answer agents."""

    ledger: Ledger
    learner: PodLearner
    config: LiveConfig
    compute_unit: Resources | None
    """`--compute-unit`, where the config has none."""
    replica: str


@dataclass(frozen=True, slots=True)
class AgentPort:
    """What is behind the port."""

    app: web.Application
    """`POST /`; every other method is 400, as agents know it, and every other path 404."""
    plain: Plain | None
    """The same for what is asked plainly; None where callers are checked."""


def agent_port(
    desk: AgentDesk,
    limits: LimitSettings,
    count: Count | None = None,
    *,
    checks: Sequence[Middleware] = (),
) -> AgentPort:
    """For whom the checks let through."""
    app = application(desk.replica, count, checks=checks)
    limit = TimeLimit(limits.answer_within)

    async def answer(body: bytes) -> bytes:
        return await in_time(_answer(desk, decode_agent_request(body)), limit)

    async def handle(request: web.Request) -> web.Response:
        if request.method != "POST":
            return text_answer(400, "must be POST")
        body = await read_body(request, limit=limits.agent_body, within=limits.read_timeout)
        return json_answer(await answer(body))

    app.router.add_route("*", "/", handle)
    plain = None if checks else plain_port("/", answer, limits, replica=desk.replica, count=count)
    return AgentPort(app, plain)


async def _answer(desk: AgentDesk, asked: AgentRequest) -> bytes:
    stamp = await desk.ledger.stamp()
    factor = effective_factor(
        asked.version,
        requested=asked.compute_unit,
        configured=desk.config.current.compute_unit or desk.compute_unit,
    )
    slot_bytes = 1 if asked.version.mem_in_bytes else await _slot_bytes(desk, asked.full_name)
    answer = await _request(desk, asked, stamp, factor, slot_bytes)
    if answer.outcome in (Permit.UNKNOWN, Permit.UNBOUND):
        await _learn(desk, asked.full_name)
        answer = await _request(desk, asked, stamp, factor, slot_bytes)
    if answer.outcome in (Permit.PERMIT, Permit.FIXED):
        return encode_agent_answer(asked.version, answer.amount, slot_bytes=slot_bytes, unit=factor)
    if answer.outcome in (Permit.UNKNOWN, Permit.UNBOUND):
        raise _not_found(asked.full_name)
    if answer.outcome is Permit.NOT_VM:
        raise WireError("pod", f"{asked.full_name} runs no VM")
    if answer.outcome is Permit.UNREADABLE:
        known = unpack_fact(await desk.ledger.read_pod(name=asked.full_name))
        problem = known.problem if known else "its data"
        raise LedgerUnavailable(f"the VM of pod {asked.full_name} cannot be read: {problem}")
    raise LedgerUnavailable("something newer has changed the permit: ask again")


async def _request(
    desk: AgentDesk, asked: AgentRequest, stamp: int, factor: Resources, slot_bytes: int
) -> PermitAnswer:
    return await desk.ledger.request_permit(
        asked.full_name,
        asked=asked.wanted(slot_bytes),
        factor=factor,
        last_permit=asked.last_permit(slot_bytes),
        stamp=stamp,
        context={"replica": desk.replica, "verb": "agent"},
    )


async def _slot_bytes(desk: AgentDesk, name: PodName) -> int:
    """Size of the slots that agents below v4.0 count in: the config's, else the VM's own."""
    if desk.config.current.mem_block_size:
        return desk.config.current.mem_block_size
    fact = unpack_fact(await desk.ledger.read_pod(name=name)) or await _learn(desk, name)
    if fact.vm is None:
        return 1  # no VM, or none that can be read: the request says so
    return fact.vm.slot_bytes


async def _learn(desk: AgentDesk, name: PodName) -> PodFact:
    """A pod whose event is late; NotFound where no pod of that name is bound."""
    fact = await desk.learner.learn(name)
    if fact is None:
        raise _not_found(name)
    return fact


def _not_found(name: PodName) -> NotFound:
    return NotFound(f"pod {name} is not known or not bound")
