"""What is made from files follows them, and outlives their being broken or gone."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from autoscale_enforcer.watched_files import Watched


class Number:
    """A file with a number, and how often it was read."""

    def __init__(self, file: Path) -> None:
        self.file, self.reads = file, 0

    def read(self) -> int:
        self.reads += 1
        return int(self.file.read_text())


@pytest.fixture
def number(tmp_path: Path) -> Number:
    file = tmp_path / "number"
    file.write_text("1")
    return Number(file)


def test_file_is_read_once_while_it_stays_as_it_is(number: Number) -> None:
    watched = Watched(number.read, number.file)

    assert [watched.current() for _ in range(3)] == [1, 1, 1]
    assert number.reads == 1


def test_file_written_anew_is_read_anew(number: Number) -> None:
    watched = Watched(number.read, number.file)

    number.file.write_text("22")

    assert watched.current() == 22
    assert watched.current() == 22
    assert number.reads == 2


def test_file_replaced_by_one_of_the_same_size_and_time_is_read_anew(number: Number) -> None:
    watched = Watched(number.read, number.file)
    was = number.file.stat()
    other = number.file.with_name("other")
    other.write_text("2")
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))

    other.replace(number.file)

    assert watched.current() == 2


def test_mounted_secret_is_followed_through_its_link(tmp_path: Path) -> None:
    """The kubelet replaces the link `..data`; the file's own link never changes."""
    for name, text in (("first", "1"), ("second", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "number").write_text(text)
    (tmp_path / "..data").symlink_to("first")
    (tmp_path / "number").symlink_to("..data/number")
    number = Number(tmp_path / "number")
    watched = Watched(number.read, number.file)

    (tmp_path / "new").symlink_to("second")
    (tmp_path / "new").rename(tmp_path / "..data")

    assert watched.current() == 2


@pytest.mark.parametrize("broken", ["no number", None], ids=["bad", "gone"])
def test_file_that_cannot_be_used_leaves_what_was_read_before(
    broken: str | None, number: Number, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(number.read, number.file)
    if broken is None:
        number.file.unlink()
    else:
        number.file.write_text(broken)

    with caplog.at_level(logging.ERROR):
        assert [watched.current() for _ in range(3)] == [1, 1, 1]

    assert watched.problem
    assert len(caplog.records) == 1
    assert str(number.file) in caplog.text
    number.file.write_text("3")
    assert watched.current() == 3
    assert not watched.problem


def test_every_file_counts(tmp_path: Path) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.write_text("1")
    watched = Watched(lambda: sum(int(file.read_text()) for file in files), *files)

    files[1].write_text("20")

    assert watched.current() == 21


def test_first_error_is_the_callers(tmp_path: Path) -> None:
    missing = Number(tmp_path / "none")

    with pytest.raises(FileNotFoundError):
        Watched(missing.read, missing.file)
