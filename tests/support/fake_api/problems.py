"""Refusals, in kube-apiserver's codes, reasons and words."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.support.fake_api.kinds import Kind


class Problem(Exception):
    """A request that is refused with a Status."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.reason, self.details = code, reason, details

    def body(self) -> bytes:
        return status_body(self.code, self.reason, str(self), self.details)


def status_body(
    code: int, reason: str, message: str, details: dict[str, Any] | None = None
) -> bytes:
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
    }
    status |= {"message": message, "reason": reason, "details": details or {}, "code": code}
    return msgspec.json.encode(status)


def success_body(code: int = 201) -> bytes:
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    return msgspec.json.encode(status | {"code": code})


def not_found(kind: Kind, name: str) -> Problem:
    return Problem(404, "NotFound", f'{kind.qualified} "{name}" not found', name=name)


def already_exists(kind: Kind, name: str) -> Problem:
    return Problem(409, "AlreadyExists", f'{kind.qualified} "{name}" already exists', name=name)


def conflict(qualified: str, name: str, why: str) -> Problem:
    words = f'Operation cannot be fulfilled on {qualified} "{name}": {why}'
    return Problem(409, "Conflict", words, name=name, kind=qualified)


def failed_precondition(
    kind: Kind, key: str, name: str, field: str, given: str, is_: str
) -> Problem:
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{kind.plural}/{key}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {field} in precondition: "
        f"{given}, {field} in object meta: {is_}"
    )
    return conflict(kind.qualified, name, why)


def modified(kind: Kind, name: str) -> Problem:
    why = (
        "the object has been modified; please apply your changes to the latest version and try "
        "again"
    )
    return conflict(kind.qualified, name, why)


def immutable_uid(kind: Kind, name: str, given: str) -> Problem:
    words = f'{kind.name} "{name}" is invalid: metadata.uid: Invalid value: "{given}"'
    return Problem(422, "Invalid", f"{words}: field is immutable", name=name)


def expired(message: str) -> Problem:
    return Problem(410, "Expired", message)


def version_ahead(asked: int, current: int) -> Problem:
    words = f"Timeout: Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return Problem(504, "Timeout", words, causes=causes, retryAfterSeconds=1)


def forbidden(verb: str, resource: str, group: str) -> Problem:
    who = "system:serviceaccount:kube-system:autoscale-enforcer"
    words = (
        f'{resource} is forbidden: User "{who}" cannot {verb} resource "{resource}" in API group '
        f'"{group}" at the cluster scope'
    )
    return Problem(403, "Forbidden", words, kind=resource)


def unauthorized() -> Problem:
    return Problem(401, "Unauthorized", "Unauthorized")
