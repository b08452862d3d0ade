"""What options are written as, durations and sizes and the like, to and from what we work with.

The readers are what click takes as an option's `type`; each raises BadParameter in words for
people. A value that is no text was given by the code, and is right already.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import click

from autoscale_enforcer.config.readers import some_mem
from autoscale_enforcer.config.settings import OwnPorts, parse_compute_unit
from autoscale_enforcer.errors import ConfigError, ObjectError
from autoscale_enforcer.model.resources import Resources

_MICROSECONDS = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_BINARY_UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def duration(text: str) -> timedelta:
    """`30s`, `500ms`, `10m`, `1h30m`, or `0`.

    A bare number is refused: whether it means seconds or milliseconds is a guess.
    """
    if text.strip() == "0":
        return timedelta(0)
    if not _DURATION.fullmatch(text.strip()):
        raise click.BadParameter(f"{text!r} is no duration such as 30s, 500ms, 10m or 1h30m")
    parts = _PART.findall(text)
    try:
        return timedelta(microseconds=sum(float(n) * _MICROSECONDS[unit] for n, unit in parts))
    except OverflowError as error:
        raise click.BadParameter(f"{text!r} is too long") from error


def size(text: str) -> int:
    """Bytes, such as 1024 or 64Mi."""
    try:
        return some_mem(text)
    except ObjectError as error:
        raise click.BadParameter(str(error)) from error


def compute_unit(text: str) -> Resources:
    """CPU and memory, such as 250m/1Gi."""
    try:
        return parse_compute_unit(text)
    except ConfigError as error:
        raise click.BadParameter("; ".join(error.problems)) from error


def pod(text: str) -> str:
    """A pod, as NAMESPACE/NAME."""
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise click.BadParameter(f"{text!r} is not NAMESPACE/NAME")
    return text


def own_ports(text: str) -> OwnPorts:
    """Three ports, such as 0,0,0."""
    try:
        extender, agent, admin = (int(part) for part in text.split(","))
    except ValueError as error:
        words = f"{text!r} is not three ports such as 0,0,0"
        raise click.BadParameter(words) from error
    return OwnPorts(extender=extender, agent=agent, admin=admin)


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise click.BadParameter(f"{text!r} is no list such as a,b")
    return found


def show_duration(value: timedelta) -> str:
    """The shortest text from which `duration` makes this value again."""
    if not value:
        return "0s"
    microseconds = value // timedelta(microseconds=1)
    for unit, factor in _MICROSECONDS.items():
        if microseconds % factor == 0:
            return f"{microseconds // factor}{unit}"
    return f"{value.total_seconds():f}s"


def show_size(count: int) -> str:
    """Bytes as people write them, where that is exact."""
    for unit, factor in _BINARY_UNITS:
        if count and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)


def written(value: Any, *, is_size: bool = False) -> Any:
    """A default as its option's own reader takes it, for `--help` to show."""
    if isinstance(value, timedelta):
        return show_duration(value)
    if isinstance(value, tuple):
        return ",".join(value) or None
    return show_size(value) if is_size else value
