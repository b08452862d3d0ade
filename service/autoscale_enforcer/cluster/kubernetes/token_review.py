"""Whether a bearer token is that of a service account that we know: the API server says.

It is asked as seldom as can be: once for a token at a time, not again while the answer is fresh,
never for a token that does not even claim to be of such an account, and within a budget of which
no caller has more than a share. A flood of forged tokens costs the API server nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import msgspec

from autoscale_enforcer.cluster.kubernetes.answers import Reply
from autoscale_enforcer.cluster.kubernetes.budget import BudgetSettings, ReadBudget
from autoscale_enforcer.cluster.kubernetes.client import KubeApi
from autoscale_enforcer.cluster.kubernetes.paths import REVIEWS
from autoscale_enforcer.errors import ClusterUnavailable

BELIEVED_FOR = 60.0
"""Seconds that a yes counts: so long a token works on that has expired or was revoked."""
REFUSED_FOR = 10.0
"""Seconds that a no counts."""
REMEMBERED = 10_000
"""Tokens, and callers; those that were seen longest ago are forgotten first."""
ALL_CALLERS = BudgetSettings(per_second=50, burst=100, longest_wait=timedelta(seconds=1))
ONE_CALLER = BudgetSettings(per_second=10, burst=20, longest_wait=timedelta(0))

K = TypeVar("K")
V = TypeVar("V")

_USER = "system:serviceaccount:"


class _User(msgspec.Struct):
    username: str = ""


class _Verdict(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    audiences: list[str] = msgspec.field(default_factory=list)


class _Review(msgspec.Struct):
    status: _Verdict


class _Claims(msgspec.Struct):
    sub: str = ""


@dataclass(frozen=True, slots=True)
class _Known:
    is_allowed: bool
    until: float


class TokenReviews:
    """Reviews for one set of accounts, each `NAMESPACE/NAME`."""

    def __init__(
        self,
        api: KubeApi,
        accounts: Iterable[str],
        *,
        audience: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._audience, self._clock = api, audience, clock
        self._users = {_USER + account.replace("/", ":") for account in accounts}
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[bool]] = {}
        self._budget = ReadBudget(ALL_CALLERS, clock=clock)
        self._shares: OrderedDict[str, ReadBudget] = OrderedDict()

    async def is_allowed(self, token: str, *, caller: str) -> bool:
        """Whether the token is now one of such an account; `caller` is whose share it costs.

        Raises ClusterUnavailable where that cannot be found out.
        """
        if _claimed(token) not in self._users:
            return False
        key = hashlib.sha256(token.encode()).digest()
        known = self._known.get(key)
        if known and known.until > self._clock():
            return known.is_allowed
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.create_task(self._ask(key, token, caller))
            self._asking[key] = asking
            asking.add_done_callback(lambda task: self._asked(key, task))
        return await asyncio.shield(asking)

    def _asked(self, key: bytes, task: asyncio.Task[bool]) -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # nobody may be waiting any more

    async def _ask(self, key: bytes, token: str, caller: str) -> bool:
        await self._share(caller).take()
        await self._budget.take()
        spec: dict[str, object] = {"token": token}
        if self._audience:
            spec["audiences"] = [self._audience]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        verdict = _read(await self._api.post(REVIEWS, body))
        is_meant = not self._audience or self._audience in verdict.audiences
        is_allowed = verdict.authenticated and is_meant and verdict.user.username in self._users
        lasts = BELIEVED_FOR if is_allowed else REFUSED_FOR
        _remember(self._known, key, _Known(is_allowed, self._clock() + lasts))
        return is_allowed

    def _share(self, caller: str) -> ReadBudget:
        share = self._shares.get(caller) or ReadBudget(ONE_CALLER, clock=self._clock)
        _remember(self._shares, caller, share)
        return share


def _remember(kept: OrderedDict[K, V], key: K, value: V) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > REMEMBERED:
        kept.popitem(last=False)


def _read(reply: Reply) -> _Verdict:
    if reply.status != 201:
        said = reply.message or reply.reason
        raise ClusterUnavailable(f"create tokenreviews: {reply.status} {said}".rstrip())
    try:
        return msgspec.json.decode(reply.body, type=_Review).status
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ClusterUnavailable("create tokenreviews: the answer is no TokenReview") from error


def _claimed(token: str) -> str:
    """The user that the token says it is of, unproven; empty where it says none."""
    parts = token.split(".")
    if len(parts) != 3:
        return ""
    try:
        claims = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(claims, type=_Claims).sub
    except (ValueError, RecursionError):  # msgspec's and base64's errors are ValueErrors
        return ""
