"""What options are written as."""

from __future__ import annotations

from datetime import timedelta

import click
import pytest

from autoscale_enforcer.cli import values
from autoscale_enforcer.config.settings import OwnPorts

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("30s", 30 * SECOND),
        ("500ms", SECOND / 2),
        ("10m", 600 * SECOND),
        ("1.5s", 1.5 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("0", 0 * SECOND),
        ("0s", 0 * SECOND),
        (" 2s ", 2 * SECOND),
    ],
)
def test_duration(text: str, value: timedelta) -> None:
    assert values.duration(text) == value


@pytest.mark.parametrize("text", ["", "30", "s", "-1s", "1 s", "1d", "1s2", "1e3s", "inf s", "٣s"])
def test_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no duration such as 30s"):
        values.duration(text)


def test_duration_that_no_timedelta_can_hold_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="too long"):
        values.duration("999999999h" * 30)


@pytest.mark.parametrize("text", ["0s", "30s", "1500ms", "10m", "1h", "90m", "0.000001s"])
def test_duration_shown_is_the_duration_read(text: str) -> None:
    assert values.show_duration(values.duration(text)) == text


@pytest.mark.parametrize(("text", "count"), [("64Mi", 64 << 20), ("1024", 1024), ("1Ki", 1024)])
def test_size(text: str, count: int) -> None:
    assert values.size(text) == count
    assert values.size(values.show_size(count)) == count


@pytest.mark.parametrize("text", ["0", "-1", "x", "1Zi"])
def test_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        values.size(text)


def test_own_ports() -> None:
    assert values.own_ports("1, 0,3") == OwnPorts(extender=1, agent=0, admin=3)


@pytest.mark.parametrize("text", ["", "1", "1,2", "1,2,3,4", "a,b,c"])
def test_own_ports_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not three ports such as 0,0,0"):
        values.own_ports(text)


def test_compute_unit_that_is_none_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="CPU: 'x' is not a quantity"):
        values.compute_unit("x/1Gi")
