"""Bearer tokens, as clients send them."""

from __future__ import annotations

from aiohttp import hdrs, web

from autoscale_enforcer.errors import NotIdentified


def bearer_token(request: web.Request) -> str:
    """The token of `Authorization: Bearer TOKEN`; NotIdentified where there is none, or two."""
    sent = request.headers.getall(hdrs.AUTHORIZATION, [])
    if len(sent) != 1:
        raise NotIdentified("send one header Authorization: Bearer TOKEN")
    scheme, _, token = sent[0].strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token.isascii() or not token:
        raise NotIdentified("send one header Authorization: Bearer TOKEN")
    return token
