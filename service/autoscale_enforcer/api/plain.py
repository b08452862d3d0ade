"""Answers to plain requests, without aiohttp: the same as an application of `api.http` gives."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import hdrs, web

from autoscale_enforcer.api.door.plain_connection import Plain, Reply, Turn
from autoscale_enforcer.api.door.plain_head import PlainHeads
from autoscale_enforcer.api.http import JSON, REPLICA_HEADER, Count, answer_to
from autoscale_enforcer.config.settings import LimitSettings

Answer = Callable[[bytes], Awaitable[bytes]]
"""JSON for the body of a request; an error becomes the answer that the one table has for it."""


def plain_port(
    path: str, answer: Answer, limits: LimitSettings, *, replica: str, count: Count | None
) -> Plain:
    """How a port answers `POST` to that path, where anybody may call it."""
    heads = PlainHeads(path, head_limit=limits.header, body_limit=limits.agent_body)
    return Plain(heads, _Answers(path, answer, replica, count).answer)


class _Answers:
    def __init__(self, path: str, answer: Answer, replica: str, count: Count | None) -> None:
        self._path, self._answer, self._replica, self._count = path, answer, replica, count
        self._json_head = self._head(200, {hdrs.CONTENT_TYPE: JSON})

    async def answer(self, body: bytes, turn: Turn) -> Reply:
        began = time.monotonic()
        try:
            await turn.begin_turn()
            status, reply = 200, Reply(self._json_head, await self._answer(body))
        except Exception as error:  # noqa: BLE001 - the middleware of those who have none
            status, reply = self._told(answer_to(error, f"POST {self._path}"))
        if self._count:
            self._count(self._path, status, time.monotonic() - began)
        return reply

    def _told(self, response: web.Response) -> tuple[int, Reply]:
        body = response.body
        if not isinstance(body, bytes):
            raise TypeError("errors are told in bytes")
        return response.status, Reply(self._head(response.status, dict(response.headers)), body)

    def _head(self, status: int, headers: dict[str, str]) -> bytes:
        headers = {**headers, REPLICA_HEADER: self._replica}
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "".join(f"{line}\r\n" for line in lines).encode()
