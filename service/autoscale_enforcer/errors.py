"""The error tree. Expected answers are values; these mean that the job could not be done.

Any layer may import this module. Library exceptions are turned into these at the edge that wraps
the library, and never pass it.
"""

from __future__ import annotations


class ServiceError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigError(ServiceError):
    """A config or setting that cannot be used; `problems` lists every bad field, path first."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class ObjectError(ServiceError):
    """A Kubernetes object, or a value in it, that cannot be understood."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason

    def under(self, parent: str) -> ObjectError:
        """The same error seen from the object that holds this one: `parent` before the path."""
        if not self.path:
            return ObjectError(parent, self.reason)
        separator = "" if self.path.startswith("[") else "."
        return ObjectError(f"{parent}{separator}{self.path}", self.reason)


class WireError(ServiceError):
    """A request body that cannot be understood; answered with 400 and the path of the field."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


class NotIdentified(ServiceError):
    """A caller that did not prove who it is; answered with 401."""


class NotAllowed(ServiceError):
    """A caller that may not do this, whoever it is; answered with 403."""


class CheckUnavailable(ServiceError):
    """Who calls cannot be found out now; answered with 503: the caller may ask again."""


class NotFound(ServiceError):
    """What was asked about is not known; answered with 404."""


class Overloaded(ServiceError):
    """More was asked at once than is worked on at once; answered with 503: ask again."""


class LedgerUnavailable(ServiceError):
    """No answer from the ledger: Redis is away, slow, or its books are not built.

    The change may be in the books all the same: with its stamp it may be asked for again.
    """


class LedgerUnfit(LedgerUnavailable):
    """The Redis that was found would lose what it is told; `problems` says how it is set up."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("Redis is not set up for this: " + "; ".join(problems))
        self.problems = problems

    def at_start(self) -> ConfigError:
        """The same for whoever has just been started: nothing is to be waited for."""
        return ConfigError([f"redis.url: {problem}" for problem in self.problems])


class ClusterUnavailable(ServiceError):
    """The Kubernetes API, or what stands in for it, gave no usable answer."""


class TooLate(ServiceError):
    """Whoever asked waits no longer; what was begun may have been done, or be done yet."""


class ScriptContractError(ServiceError):
    """A script answered something its header does not name: a bug, never a state."""
