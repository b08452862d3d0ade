"""What an error of Redis means for us: look for the primary again, or tell that it refused."""

from __future__ import annotations

from redis.exceptions import (
    AskError,
    ClusterError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

_NOT_THE_ONE_TO_ASK = (ReadOnlyError, AskError, ClusterError, TryAgainError)

_NOT_THE_ONE_TO_ASK_WORDS = (
    # Demoted while we waited for replicas, or before.
    "UNBLOCKED",
    "WAIT cannot be used with replica instances",
    "WAITAOF cannot be used with replica instances",
    # It lost its replicas: cut off, it may have been replaced without our connection noticing.
    "NOREPLICAS",
    "Not enough good replicas to write",
)


def is_lost_connection(error: Exception) -> bool:
    """The server gave no answer, or may not be the one to ask: look for the primary again.

    Every other error is a refusal of the primary itself: memory full, disk failing, a script
    that runs too long, a right that is missing. It has carried out nothing then.
    """
    if isinstance(error, ResponseError):
        return isinstance(error, _NOT_THE_ONE_TO_ASK) or str(error).removeprefix("ERR ").startswith(
            _NOT_THE_ONE_TO_ASK_WORDS
        )
    return isinstance(error, (RedisError, OSError))


def why(error: Exception) -> str:
    """An error of Redis or of the network in a few words."""
    return str(error) if isinstance(error, (RedisError, OSError)) else repr(error)
