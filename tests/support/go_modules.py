"""Programs built with Go from a module of ours, once, and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


class GoError(Exception):
    """Go is missing, or what it was asked for failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoModule:
    """A module and what is built of it. Everything that changes the programs is in here."""

    folder: Path
    name: str
    """Of its part of the cache."""
    packages: Mapping[str, str]
    """Program and the package that it is built from."""
    sources: Sequence[str]
    """Files that decide what is built, in the folder."""
    flags: Sequence[str] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    """Put into the flags; what the sources say already."""
    environ: Mapping[str, str] = field(default_factory=dict)

    def cache_folder(self) -> Path:
        """Another folder for other programs; nothing in it is ever rebuilt. Raises GoError."""
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        go = self.go("env", "GOVERSION", "GOOS", "GOARCH")
        sources = "".join((self.folder / each).read_text() for each in self.sources)
        key = hashlib.sha256("\n".join([go, sources, *self.flags]).encode()).hexdigest()[:16]
        return Path(cache) / "autoscale-enforcer" / self.name / key

    def build(self) -> Path:
        """The folder with the programs. Safe to repeat and beside another build. Raises GoError."""
        folder = self.cache_folder()
        if folder.exists():
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        flags = [each.format(**self.words) for each in self.flags]
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as building:
            for name, package in self.packages.items():
                self.go("build", *flags, "-o", f"{building}/{name}", package)
            if not folder.exists():
                # One rename, so that a folder that exists is whole. Not the temporary folder
                # itself, which nobody but us may read.
                whole = Path(building) / "whole"
                whole.mkdir()
                for name in self.packages:
                    (Path(building) / name).rename(whole / name)
                whole.rename(folder)
        return folder

    def go(self, *args: str) -> str:
        """What the go command writes to stdout, run in the module. Raises GoError."""
        if shutil.which("go") is None:
            raise GoError("Go is missing")
        done = subprocess.run(
            ["go", *args],
            cwd=self.folder,
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise GoError(f"go {' '.join(args)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout
