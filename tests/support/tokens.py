"""Service accounts' tokens, unsigned, and an API server that knows which ones it made."""

# ruff: noqa: ARG002 - as in fake_api.faults
from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.fake_api.faults import GoOn

RESOURCE = "apis/authentication.k8s.io/v1/tokenreviews"
"""Under which the fake API server counts reviews."""
USER = "system:serviceaccount:"


def token_of(account: str, *, salt: str = "") -> str:
    """What claims to be a token of `namespace/name`; another one with another salt."""
    claims = {"sub": USER + account.replace("/", ":"), "jti": salt}
    parts = [{"alg": "none"}, claims]
    return ".".join([*(_part(part) for part in parts), "signature"])


def _part(part: dict[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


@dataclass(slots=True)
class Reviewer:
    """Answers reviews, as a fault of the fake API server; it knows these tokens."""

    accounts: dict[str, str] = field(default_factory=dict)
    """Account by token."""
    audiences: list[str] = field(default_factory=list)
    """That they are made for; none: whatever is asked."""
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    reviewed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_answer.set()

    async def answer(self, request: web.Request, go_on: GoOn) -> web.StreamResponse:
        review = await request.json()
        self.reviewed.append(review["spec"]["token"])
        await self.may_answer.wait()
        return web.json_response(review | {"status": self.status(review["spec"])}, status=201)

    def status(self, spec: dict[str, Any]) -> dict[str, Any]:
        account = self.accounts.get(spec["token"])
        wanted = spec.get("audiences", [])
        if account is None or (self.audiences and not set(wanted) & set(self.audiences)):
            return {"authenticated": False, "user": {}, "error": "not known"}
        user = {"username": USER + account.replace("/", ":"), "groups": ["system:authenticated"]}
        return {"authenticated": True, "user": user, "audiences": wanted}
