"""What can go wrong with a request, as errors of ours; the words are for people.

A refusal is an answer of the API server, everything else means that no whole answer came.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from autoscale_enforcer.errors import ClusterUnavailable

_VERSION_AHEAD = "Too large resource version"


class ApiRefusal(ClusterUnavailable):
    """The API server answered, and the answer is no."""

    def __init__(self, words: str, *, status: int, reason: str, retry_after: float = 0) -> None:
        super().__init__(words)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        """Seconds that the API server wants to be left alone; 0: it did not say."""


class Expired(ApiRefusal):
    """The version or page asked for is there no longer, or not yet: only a new list helps."""


class Forbidden(ApiRefusal):
    """A permission is missing; the words name it."""


class NotServed(ApiRefusal):
    """Not found, and that in other words than Kubernetes has for an object that is not there.

    So an API server answers for a kind that it does not know, such as a CRD that is not installed;
    but so may anything between us and it. It proves of no object that it is gone.
    """


class Status(msgspec.Struct):
    """Kubernetes' answer where there is no object to answer with."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    status: str | None = None


def read_status(body: bytes | msgspec.Raw) -> Status:
    """The Status in a body; an empty one where it holds something else, such as a proxy's page."""
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Status()


def refusal(
    asked: str, code: int, status: Status, headers: Mapping[str, str] | None = None
) -> ApiRefusal:
    """The error for an answer with that code; `asked` says what for, such as `watch pods`."""
    reason, message = status.reason or "", status.message or ""
    said = f"{asked}: {code} {reason}".rstrip() + (f": {message}" if message else "")
    retry_after = _seconds((headers or {}).get("Retry-After", ""))
    if code == 403:
        words = f"missing permission to {asked}: {message or reason or code}"
        return Forbidden(words, status=code, reason=reason)
    kind = ApiRefusal
    if code == 410 or message.startswith(("Timeout: " + _VERSION_AHEAD, _VERSION_AHEAD)):
        kind = Expired
    elif code == 404:
        kind = NotServed
    return kind(said, status=code, reason=reason, retry_after=retry_after)


def _seconds(text: str) -> float:
    """Of a Retry-After header; its other form, a date, is not used by API servers."""
    return min(float(text), 300.0) if text.isascii() and text.isdigit() else 0.0
