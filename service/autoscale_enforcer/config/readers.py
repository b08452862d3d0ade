"""Values of a config as what we work with; each reader raises ObjectError with what is wrong.

Booleans are never numbers, and only quantities may be written as text or number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeGuard

from autoscale_enforcer.config.document import kind_of
from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.resources import MAX_MEM_BYTES
from autoscale_enforcer.objects import quantity

MIB = 1 << 20

MAX_SLOTS = (1 << 16) - 1
"""Releases that count memory in slots keep the count in 16 bits."""

_METRIC_LABEL = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]*")
"""What Prometheus takes as the name of a label of ours."""


def flag(value: object) -> bool:
    """A JSON true or false, and nothing that only looks like one."""
    if isinstance(value, bool):
        return value
    raise ObjectError("", f"must be true or false, not {kind_of(value)}")


def text(value: object) -> str:
    """Text that can be stored and sent, empty or not."""
    if not isinstance(value, str):
        raise ObjectError("", f"must be a string, not {kind_of(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ObjectError("", "holds half of a character (a lone surrogate)") from error
    return value


def name(value: object) -> str:
    """Text that is not empty."""
    if found := text(value):
        return found
    raise ObjectError("", "must not be empty")


def metric_label(value: object) -> str:
    """The name of a label of a metric."""
    if _METRIC_LABEL.fullmatch(text(value)):
        return text(value)
    raise ObjectError("", "is no name for a metric's label (letters, digits, _; no __ first)")


def fraction(value: object) -> float:
    """A number from 0 to 1, both included."""
    if _is_number(value) and 0 <= value <= 1:
        return float(value)
    raise ObjectError("", f"must be a number between 0 and 1, not {_shown(value)}")


def watermark(value: object) -> float:
    """A number above 0, up to 1; at 0 every pod would have to leave."""
    if _is_number(value) and 0 < value <= 1:
        return float(value)
    raise ObjectError("", f"must be a number between 0 and 1, above 0, not {_shown(value)}")


def cpu(value: object) -> int:
    """Millicores from a quantity."""
    return quantity.cpu_milli(_quantity(value))


def mem(value: object) -> int:
    """Bytes from a quantity."""
    return quantity.mem_bytes(_quantity(value))


def some_cpu(value: object) -> int:
    """Millicores from a quantity above 0."""
    return _above_zero(cpu(value))


def some_mem(value: object) -> int:
    """Bytes from a quantity above 0."""
    return _above_zero(mem(value))


def unit_mem(slot_bytes: int | None) -> Callable[[object], int]:
    """A reader for a compute unit's memory, in bytes: from slots of that size, else a quantity."""
    if slot_bytes is None:
        return _unit_quantity

    def read_slots(value: object) -> int:
        amount = _slots(value) * slot_bytes
        if amount > MAX_MEM_BYTES:
            raise ObjectError("", f"with memBlockSize is more than {MAX_MEM_BYTES} bytes")
        return amount

    return read_slots


def _slots(value: object) -> int:
    if not _is_number(value) or not 1 <= value <= MAX_SLOTS or value != int(value):
        raise ObjectError(
            "", f"must be a whole number of memBlockSize, 1 to {MAX_SLOTS}, not {_shown(value)}"
        )
    return int(value)


def _unit_quantity(value: object) -> int:
    amount = some_mem(value)
    if amount < MIB:  # a count of slots, left behind without its memBlockSize
        raise ObjectError("", f"must be bytes such as 1Gi, not {amount} (there is no memBlockSize)")
    return amount


def _quantity(value: object) -> object:
    if _is_number(value) or isinstance(value, str):
        return value
    raise ObjectError("", f"must be a quantity, not {kind_of(value)}")


def _above_zero(amount: int) -> int:
    if amount > 0:
        return amount
    raise ObjectError("", "must be above 0")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    return str(value) if _is_number(value) else kind_of(value)
