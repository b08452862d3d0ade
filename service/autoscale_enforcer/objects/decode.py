"""JSON text and plain Python values into typed structs; every failure is an ObjectError.

The only place that knows how msgspec words its errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from autoscale_enforcer.errors import ObjectError

T = TypeVar("T")
Given = TypeVar("Given")
Read = TypeVar("Read")

_WORDS = re.compile(r"(?P<reason>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?", re.DOTALL)


def decode(source: bytes | str | msgspec.Raw, kind: type[T]) -> T:
    """The JSON text as a `kind`; raises ObjectError with the path of the first bad field."""
    try:
        return msgspec.json.decode(source, type=kind)
    except msgspec.MsgspecError as error:
        raise object_error(error) from error
    except RecursionError as error:
        raise ObjectError("", "nested too deeply") from error


def convert(value: object, kind: type[T]) -> T:
    """The same for what another parser (YAML) has already turned into Python values."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.MsgspecError as error:
        raise object_error(error) from error
    except RecursionError as error:
        raise ObjectError("", "nested too deeply") from error


def object_error(error: msgspec.MsgspecError) -> ObjectError:
    """The complaint of msgspec with its path written as ours: `spec.containers[1].name`."""
    match: Any = _WORDS.fullmatch(str(error))
    reason = match["reason"].replace(" | null", "").replace("`", "")
    return ObjectError(match["path"] or "", reason[:1].lower() + reason[1:])


def read_at(path: str, read: Callable[[Given], Read], value: Given) -> Read:
    """What `read` makes of the value that stands at `path`; its complaint carries the path."""
    try:
        return read(value)
    except ObjectError as error:
        raise error.under(path) from error
