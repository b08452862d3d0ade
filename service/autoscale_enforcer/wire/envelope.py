"""Reading JSON objects whose keys may come in any case, as Go's decoder reads them.

Go's encoder writes one spelling and its decoder takes any, and clients of either kind exist. So a
body is first read as Go writes it, and only what that refuses is looked at key by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from autoscale_enforcer.errors import WireError
from autoscale_enforcer.objects.decode import object_error

T = TypeVar("T")
Document = bytes | msgspec.Raw

ABSENT = msgspec.Raw()
"""Default of fields that are kept raw: msgspec has no `Raw | None`."""


class Envelope(Generic[T]):
    """Reads JSON objects into `kind`, a Struct that forbids unknown fields.

    Unknown keys are ignored, and keys are taken in any case: the last of those that differ in
    case only counts, as in Go. Values that `kind` keeps raw are the very bytes that came.
    """

    def __init__(self, kind: type[T], *, older: Mapping[str, str] | None = None) -> None:
        names = [field.encode_name for field in msgspec.structs.fields(kind)]  # type: ignore[arg-type]  # every kind is a Struct
        self._decoder = msgspec.json.Decoder(kind)
        self._spelling = {name.lower(): name for name in names}
        self._spelling.update({old.lower(): name for old, name in (older or {}).items()})

    def read(self, document: Document, path: str = "") -> T:
        """The typed value; `path` is where `document` stands in the body, for errors."""
        try:
            return self._decoder.decode(document)
        except msgspec.ValidationError:
            pass  # another case, an unknown key, or wrong: the careful way below tells which
        except (msgspec.DecodeError, RecursionError) as error:
            raise _wire_error(error, path) from error
        return decode(self._decoder, self._respelled(document, path), path)

    def _respelled(self, document: Document, path: str) -> bytes:
        pairs = decode(_ANY_KEYS, document, path).items()
        known = ((self._spelling.get(key.text.lower()), value) for key, value in pairs)
        return msgspec.json.encode({name: value for name, value in known if name})


class _Key:
    """A key that equals no other, so that a dict keeps all of them, in the order they came."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


_ANY_KEYS = msgspec.json.Decoder(dict[_Key, msgspec.Raw], dec_hook=lambda kind, text: kind(text))


def decode(decoder: msgspec.json.Decoder[T], document: Document, path: str = "") -> T:
    """What `decoder` makes of `document`; its refusals as WireError below `path`."""
    try:
        return decoder.decode(document)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _wire_error(error, path) from error


def check_text(body: bytes) -> None:
    """Refuse a body that is not UTF-8: values that are kept raw are not looked at again."""
    try:
        if not body.isascii():
            body.decode()
    except UnicodeDecodeError as error:
        raise WireError("", f"the body is not UTF-8 (byte {error.start})") from error


def is_given(raw: msgspec.Raw) -> bool:
    """False where the field is absent or null."""
    return bytes(memoryview(raw)[:5]) not in {b"", b"null"}


def given(raw: msgspec.Raw, path: str) -> msgspec.Raw:
    """The value; WireError where it is absent or null."""
    return required(raw if is_given(raw) else None, path)


def required(value: T | None, path: str) -> T:
    """The value; WireError where it is absent or null."""
    if value is None:
        raise WireError(path, "is required")
    return value


def join_path(parent: str, child: str) -> str:
    """The path of `child` (a field, or an `[index]`) seen from the whole body."""
    separator = "." if parent and child and not child.startswith("[") else ""
    return f"{parent}{separator}{child}"


def refuse(problem: str, path: str) -> None:
    """WireError at `path` where there is a problem."""
    if problem:
        raise WireError(path, problem)


def refuse_first(problems: Iterable[tuple[str, str]]) -> None:
    """WireError for the first (path, problem) that has a problem."""
    for path, problem in problems:
        refuse(problem, path)


def _wire_error(error: msgspec.DecodeError | RecursionError, path: str) -> WireError:
    if isinstance(error, RecursionError):
        return WireError(path, "is nested too deeply")
    if not isinstance(error, msgspec.ValidationError):
        return WireError(path, f"is not valid JSON ({error})")
    wrong = object_error(error)
    return WireError(join_path(path, wrong.path), wrong.reason)
