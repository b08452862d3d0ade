"""Flame graphs: what a picture and a table say of sampled stacks."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from bench.flame import read, short, svg, table

LINES = [
    "main (/x/start.py:1);run (/y/site-packages/aiohttp/web.py:2);<lambda> (/z/service/a/b.py:3) 6",
    "main (/x/start.py:1);run (/y/site-packages/aiohttp/web.py:9) 3",
    "main (/x/start.py:1);run (/y/site-packages/aiohttp/web.py:9);run (aiohttp/web.py:4) 1",
    "idle (wait.c:1) 90",
]


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        ("f (/a/site-packages/redis/client.py:12)", "f (redis/client.py)"),
        ("f (/a/service/autoscale_enforcer/x.py:1)", "f (autoscale_enforcer/x.py)"),
        ("write (libc.so.6)", "write (libc.so.6)"),
        ("bare", "bare"),
    ],
)
def test_frame_is_named_without_path_and_line(frame: str, name: str) -> None:
    assert short(frame) == name


def test_table_tells_own_time_from_that_of_calls_and_counts_recursion_once() -> None:
    rows = table(read(LINES, below="main")).splitlines()

    assert rows[1:3] == [" 60.0%  60.0%  <lambda> (a/b.py)", " 40.0% 100.0%  run (aiohttp/web.py)"]


def test_below_a_function_nothing_else_counts() -> None:
    assert read(LINES).samples == 100
    assert read(LINES, below="main").samples == 10
    assert read(LINES, below="nobody").samples == 0


def test_picture_is_svg_whose_boxes_are_as_wide_as_their_share() -> None:
    picture = ET.fromstring(svg(read(LINES), "a < b"))

    space = "{http://www.w3.org/2000/svg}"
    widths = {
        str(group.findtext(f"{space}title")): float(box.get("width", ""))
        for group in picture.findall(f"{space}g")
        for box in group.findall(f"{space}rect")
    }
    assert widths["all: 100.0 %"] == 1200
    assert widths["<lambda> (a/b.py): 6.0 %"] == 72
    assert widths["idle (wait.c): 90.0 %"] == 1080
    assert "a < b, 100 samples" in str(picture.findtext(f"{space}text"))
