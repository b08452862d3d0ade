"""Quantities against Kubernetes' own answers, an independent parser, and absurd input."""

from __future__ import annotations

import json
import math
import re
import time
from contextlib import suppress
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.resources import MAX_CPU_MILLI, MAX_MEM_BYTES
from autoscale_enforcer.objects.quantity import (
    cpu_milli,
    format_cpu,
    format_mem,
    mem_bytes,
    ratio_thousandths,
)
from tests.unit.objects.make import DATA, json_lines

SUFFIXES = (
    {"": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)}
    | {name: Fraction(1000) ** power for power, name in enumerate("kMGTPE", start=1)}
    | {f"{name}i": Fraction(1024) ** power for power, name in enumerate("KMGTPE", start=1)}
)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ("129e6", 129000000),
        ("128974848000m", 128974848),
        ("644245094400m", 644245095),
        ("123Mi", 128974848),
        ("1.5Gi", 1610612736),
        ("0.1Gi", 107374183),
        ("1E3", 1000),
        ("1.", 1),
        ("+1", 1),
        ("1n", 1),
        ("0e999999999", 0),
        ("-0", 0),
        (" 1Gi\n", 1 << 30),
        (4294967296, 1 << 32),
        ("64Ti", MAX_MEM_BYTES),
        (1e6, 1000000),
    ],
)
def test_mem_bytes_is_exact_and_rounded_up(memory: object, expected: int) -> None:
    """Field report 14: exponents and milli-bytes were misread."""
    assert mem_bytes(memory) == expected


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [("0.5", 500), (0.5, 500), ("100u", 1), (".25", 250), ("+1", 1000), (2, 2000), (0.1, 100)],
)
def test_cpu_milli_is_exact_and_rounded_up(cpu: object, expected: int) -> None:
    assert cpu_milli(cpu) == expected


@pytest.mark.parametrize(
    ("read", "spellings"),
    [
        (cpu_milli, ("0.25", "250m", 0.25, "25e-2")),
        (mem_bytes, ("4Gi", 4294967296, "4294967296", "4096Mi")),
    ],
)
def test_spellings_of_one_amount_are_equal(read: Any, spellings: tuple[object, ...]) -> None:
    """Field report 15, what comes in."""
    assert len({read(value) for value in spellings}) == 1


ABSURD: list[Any] = [
    *("1e999999999", "1e-999999999", "1" * 400_000, "1" * 5000 + "Ei", "1" * 120 + "Ei", "9E999"),
    *(10**4000, "1e" + "9" * 400_000, "0" * 400_000, " " * 400_000, "2Ei", 1e300, "65Ti"),
]


def test_absurd_quantities_are_refused_at_once() -> None:
    began = time.process_time()

    for value in ABSURD:
        for _ in range(100):
            with pytest.raises(ObjectError) as refusal:
                mem_bytes(value)
            assert refusal.value.path == ""
            assert len(refusal.value.reason) < 120

    assert time.process_time() - began < 1


@pytest.mark.parametrize("read", [cpu_milli, mem_bytes, ratio_thousandths])
@pytest.mark.parametrize(
    "value",
    [
        *(True, False, None, [], {}, math.nan, math.inf, -math.inf, -1, -0.5, "-1", "-1n", "-0.1m"),
        *("", "+", ".", "Ki", "m", "1K", "1ki", "1mi", "1e", "1e+", "1Ei3", "1e1.5", "1 Gi"),
        *("1,5", "1_000", "0x10", "abc", "\u0661", "NaN", "inf", "1..", "1.1.1", "--1", "1Gi\x00"),
    ],
    ids=repr,
)
def test_what_is_no_amount_is_refused(read: Any, value: object) -> None:
    with pytest.raises(ObjectError) as refusal:
        read(value)
    assert refusal.value.path == ""
    assert refusal.value.reason


@pytest.mark.parametrize(
    ("read", "largest", "step"), [(cpu_milli, MAX_CPU_MILLI, "m"), (mem_bytes, MAX_MEM_BYTES, "")]
)
def test_the_largest_amount_is_taken_and_one_more_refused(
    read: Any, largest: int, step: str
) -> None:
    assert read(f"{largest}{step}") == largest
    with pytest.raises(ObjectError, match="is more than"):
        read(f"{largest + 1}{step}")


@pytest.mark.parametrize(
    ("factor", "expected"),
    [("1500m", 1500), (1.5, 1500), (1, 1000), ("1.0009", 1000), ("0.1", 100), ("100", 100_000)],
)
def test_ratio_thousandths_is_rounded_down(factor: object, expected: int) -> None:
    assert ratio_thousandths(factor) == expected


@pytest.mark.parametrize("factor", ["0.0999", "0", "100.001", "1Ki"])
def test_ratio_thousandths_refuses_what_is_out_of_range(factor: object) -> None:
    with pytest.raises(ObjectError, match="not between"):
        ratio_thousandths(factor)


@pytest.mark.parametrize(
    ("milli", "expected"), [(250, "250m"), (1000, 1), (1500, "1500m"), (0, 0), (64000, 64)]
)
def test_format_cpu_is_a_number_when_whole(milli: int, expected: object) -> None:
    """Field report 15, what goes out: old peers expect whole CPUs as integers."""
    assert json.dumps(format_cpu(milli)) == json.dumps(expected)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        *((0, 0), (512, 512), (1023, 1023), (1024, "1Ki"), (1025, "1025")),
        *((1536 << 20, "1536Mi"), (4 << 30, "4Gi"), (10**9, "1000000000"), (64 << 40, "64Ti")),
    ],
)
def test_format_mem_is_canonical(amount: int, expected: object) -> None:
    assert json.dumps(format_mem(amount)) == json.dumps(expected)


@given(st.integers(0, MAX_CPU_MILLI))
def test_cpu_survives_the_way_out_and_in(milli: int) -> None:
    assert cpu_milli(format_cpu(milli)) == milli


@given(st.integers(0, MAX_MEM_BYTES) | st.integers(0, 1 << 16).map(lambda mi: mi << 20))
def test_memory_survives_the_way_out_and_in(amount: int) -> None:
    assert mem_bytes(format_mem(amount)) == amount


def reference(text: str) -> Fraction:
    """The grammar once more, by other means: Fraction reads the number, a table the suffix."""
    match = re.fullmatch(r"([+-]?[0-9.]+)([a-zA-Z]{0,2}?)(?:[eE]([+-]?[0-9]+))?", text)
    assert match, text
    number = Fraction(match[1].rstrip(".") if match[1] != "." else "x")
    return number * SUFFIXES[match[2]] * Fraction(10) ** int(match[3] or 0)


texts = st.builds(
    lambda sign, number, suffix: sign + number + suffix,
    st.sampled_from(["", "+"]),
    st.from_regex(r"[0-9]{1,20}(\.[0-9]{0,15})?|\.[0-9]{1,15}", fullmatch=True),
    st.sampled_from(sorted(SUFFIXES)) | st.from_regex(r"[eE][+-]?[0-9]{1,2}", fullmatch=True),
)


@given(texts)
def test_reading_agrees_with_an_independent_parser(text: str) -> None:
    exact = reference(text)

    for read, scale, largest in ((cpu_milli, 1000, MAX_CPU_MILLI), (mem_bytes, 1, MAX_MEM_BYTES)):
        if exact * scale > largest:
            with pytest.raises(ObjectError, match="is more than"):
                read(text)
        else:
            assert read(text) == math.ceil(exact * scale)


@given(st.text(max_size=200) | st.floats() | st.integers())
def test_reading_anything_gives_an_amount_or_an_object_error(value: object) -> None:
    with suppress(ObjectError):
        assert 0 <= mem_bytes(value) <= MAX_MEM_BYTES


def test_kubernetes_gives_the_same_answers() -> None:
    """Recorded from apimachinery; we refuse more: negative, absurd, and without any digit."""
    for line in json_lines(DATA / "kubernetes" / "quantities.jsonl"):
        text = line["text"]
        digits = re.match(r"[+-]?\.?[0-9]", text)
        for read, largest in ((cpu_milli, MAX_CPU_MILLI), (mem_bytes, MAX_MEM_BYTES)):
            answer = line["cpuMilli" if read is cpu_milli else "memoryBytes"]
            try:
                assert read(text) == answer, text
                assert line["read"], text
            except ObjectError:
                small = digits and line["read"] and 0 <= reference(text) < largest // 1000
                assert not small, text


def test_kubernetes_writes_memory_the_same_way() -> None:
    """From 1024 on; below, Kubernetes turns to `1k`, and agents read a plain number."""
    for line in json_lines(DATA / "kubernetes" / "quantities.jsonl"):
        if line["read"] and 1024 <= line["memoryBytes"] <= MAX_MEM_BYTES:
            assert str(format_mem(line["memoryBytes"])) == line["bytes"]
