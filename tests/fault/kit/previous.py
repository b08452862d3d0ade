"""The previous release, in an environment of its own, to run beside this one.

That is the newest tag below this commit; before there is one, the commit that closed the first
issue. It is installed once, outside the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLLOWS_FIRST_ISSUE = "^Work in a live cluster"
"""Subject of the commit after the one that closed the first issue."""


class PreviousReleaseMissing(Exception):
    """It cannot be found or installed; says what to do."""


def previous_commit() -> str:
    """What was released before this commit; PreviousReleaseMissing where history does not say."""
    tags = _git("tag", "--merged", "HEAD~1", "--sort=-creatordate").split()
    if tags:
        return _git("rev-list", "-n", "1", tags[0])
    after = _git("log", f"--grep={FOLLOWS_FIRST_ISSUE}", "--format=%H").split()
    if not after:
        raise PreviousReleaseMissing(
            "no tag and no commit 'Work in a live cluster' in this history, as in a shallow clone: "
            "fetch all of it, with `git fetch --unshallow --tags`"
        )
    return _git("rev-parse", f"{after[-1]}^")


def previous_python() -> Path:
    """The Python that has it; takes a minute the first time."""
    commit = previous_commit()
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = home / "autoscale-enforcer" / f"{commit[:12]}-{sys.version_info.minor}"
    if not (place / "done").exists():
        _install(commit, place)
    return place / "venv" / "bin" / "python"


def _install(commit: str, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="ae-previous-") as folder:
        archive = Path(folder) / "all.tar"
        _git("archive", f"--output={archive}", commit)
        subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
        python = place / "venv" / "bin" / "python"
        pip: list[str | Path] = [
            python,
            "-m",
            "pip",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
        ]
        requirements = Path(folder) / "requirements" / "run.txt"
        commands: list[list[str | Path]] = [
            [sys.executable, "-m", "venv", place / "venv"],
            [*pip, "install", "--require-hashes", "--requirement", requirements],
            [*pip, "install", "--no-deps", "--no-build-isolation", folder],
        ]
        for command in commands:
            subprocess.run(command, check=True)
    (place / "done").touch()


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PreviousReleaseMissing(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    print(previous_python())  # noqa: T201 - for people who want it at hand
