"""Kubernetes quantities as whole millicores and whole bytes, exactly and in bounded time.

The grammar is the one that apimachinery documents on `resource.Quantity`: a sign, decimal digits
with a point anywhere among them, and one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or a decimal
exponent. As there, nothing finer than a billionth (nano) exists: it is rounded up to one.
Kubernetes' scanner also takes a sign, a point or a suffix without any digit and reads zero; that
is refused here, for such a text says nothing (the API server never writes it).
"""

from __future__ import annotations

import re
from functools import lru_cache

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.resources import MAX_CPU_MILLI, MAX_MEM_BYTES

NANO = 1_000_000_000
"""Kubernetes' resolution: billionths of a core or of a byte."""

NANO_PER_MILLI = NANO // 1000

LONGEST = 128
"""Characters; the longest text that the API server writes has fewer than 40."""

LARGEST_EXPONENT = 999
"""Far above any amount; bounds the work that `1e999999999` may cause."""

_SHAPE = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<only_part>[0-9]+))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_NAMES = ("", *_BINARY)


def cpu_milli(value: object) -> int:
    """Whole millicores, rounded up; refuses what is negative or above MAX_CPU_MILLI."""
    return round_up(cpu_nano(value), NANO_PER_MILLI)


def mem_bytes(value: object) -> int:
    """Whole bytes, rounded up; refuses what is negative or above MAX_MEM_BYTES."""
    return round_up(mem_nano(value), NANO)


def cpu_nano(value: object) -> int:
    """Billionths of a core, for exact sums; the same limits as `cpu_milli`."""
    # The same few texts come with every pod.
    return _cpu_of_text(value) if isinstance(value, str) else _cpu(value)


def mem_nano(value: object) -> int:
    """Billionths of a byte, for exact sums; the same limits as `mem_bytes`."""
    return _mem_of_text(value) if isinstance(value, str) else _mem(value)


def _cpu(value: object) -> int:
    nano = _nano(value)
    if nano > MAX_CPU_MILLI * NANO_PER_MILLI:
        raise ObjectError("", f"{_shown(value)} is more than {MAX_CPU_MILLI // 1000} CPUs")
    return nano


def _mem(value: object) -> int:
    nano = _nano(value)
    if nano > MAX_MEM_BYTES * NANO:
        raise ObjectError("", f"{_shown(value)} is more than {MAX_MEM_BYTES} bytes")
    return nano


_cpu_of_text = lru_cache(maxsize=4096)(_cpu)
_mem_of_text = lru_cache(maxsize=4096)(_mem)


def ratio_thousandths(value: object) -> int:
    """An overcommit factor in whole thousandths, 100 to 100,000.

    Rounded down: the smaller factor is the smaller discount, which cannot over-commit a node.
    """
    nano = _nano(value)
    if not NANO // 10 <= nano <= NANO * 100:
        raise ObjectError("", f"{_shown(value)} is not between 0.1 and 100")
    return nano // NANO_PER_MILLI


def round_up(nano: int, unit: int) -> int:
    """How many whole units cover that many billionths."""
    return -(-nano // unit)


def format_cpu(milli: int) -> int | str:
    """CPU as agents read it: a number when whole (all that old agents know), else `250m`."""
    return f"{milli}m" if milli % 1000 else milli // 1000


def format_mem(amount: int) -> int | str:
    """Bytes as agents read them: a number below 1024, else the canonical quantity (BinarySI).

    Never in scientific notation; 1000000000 stays as it is, for no binary suffix divides it.
    """
    if amount < 1024:
        return amount
    power = 0
    while amount % 1024 == 0 and power < len(_BINARY):
        amount //= 1024
        power += 1
    return f"{amount}{_BINARY_NAMES[power]}"


def _nano(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ObjectError("", f"{_shown(value)} is not a quantity")
    if isinstance(value, int):
        nano = value * NANO
    else:
        # The shortest decimal that gives this float is what the JSON said.
        text = value if isinstance(value, str) else repr(value)
        if len(text) > LONGEST:
            raise ObjectError("", f"{_shown(text)} is longer than a quantity can be")
        nano = _parse(text.strip())
    if nano < 0:
        raise ObjectError("", f"{_shown(value)} is negative")
    return nano


def _parse(text: str) -> int:
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise ObjectError("", f"{_shown(text)} is not a quantity")
    part = match["part"] or match["only_part"] or ""
    number = int((match["whole"] or "") + part)
    if number == 0:
        return 0
    exponent = int(match["exponent"] or _DECIMAL.get(match["suffix"], 0))
    if abs(exponent) > LARGEST_EXPONENT:
        raise ObjectError("", f"{_shown(text)} has an exponent out of range")
    number <<= _BINARY.get(match["suffix"], 0)
    power = exponent - len(part) + 9
    nano = number * 10**power if power >= 0 else round_up(number, 10**-power)
    return -nano if match["sign"] == "-" else nano


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:37] + "...")
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Turning a number of many thousand digits into text is slow, and refused by Python.
        return str(value) if abs(value) < 1e30 else "a huge number"
    return "null" if value is None else type(value).__name__
