"""Malformed objects: every failure is an ObjectError with our path."""

from __future__ import annotations

import msgspec
import pytest

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.objects.decode import convert, decode
from autoscale_enforcer.objects.shapes import PodObject


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ('{"spec": {"containers": "x"}}', "spec.containers", "expected array, got str"),
        ('{"spec": {"containers": [{}, 5]}}', "spec.containers[1]", "expected object, got int"),
        ('{"spec": {"containers": [{"name": 3}]}}', "spec.containers[0].name", "expected str"),
        ('{"metadata": {"labels": {"a": 1}}}', "metadata.labels[...]", "expected str, got int"),
        ("[]", "", "expected object, got array"),
        ("{", "", "input data was truncated"),
        ("", "", "input data was truncated"),
        ('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}", "", "nested too deeply"),
    ],
    ids=lambda value: value[:40],
)
def test_decode_names_the_field_and_what_it_should_be(text: str, path: str, reason: str) -> None:
    with pytest.raises(ObjectError) as refusal:
        decode(text.encode(), PodObject)
    assert refusal.value.path == path
    assert refusal.value.reason.startswith(reason)


def test_convert_names_the_field_too() -> None:
    with pytest.raises(ObjectError) as refusal:
        convert({"spec": {"containers": [{}, {"restartPolicy": []}]}}, PodObject)
    assert refusal.value.path == "spec.containers[1].restartPolicy"


def test_convert_refuses_keys_that_are_no_text() -> None:
    with pytest.raises(ObjectError) as refusal:
        convert({"metadata": {"labels": {1: "x"}}}, PodObject)
    assert refusal.value.path == "metadata.labels"


def test_decode_lets_no_error_of_msgspec_out() -> None:
    for text in (b"\xff", b'{"metadata": {"name": "\xff"}}', b"nul", b"1e999"):
        with pytest.raises(ObjectError) as refusal:
            decode(text, PodObject)
        assert isinstance(refusal.value.__cause__, msgspec.MsgspecError)
