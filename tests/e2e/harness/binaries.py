"""Where etcd, kube-apiserver and kube-scheduler come from.

KUBEBUILDER_ASSETS when it is set, else built once with Go from `tests/e2e/binaries` and kept in the
user's cache. `python -m tests.e2e.harness.binaries` builds them; tests only look for them, for a
build takes longer than any test may.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MODULE = Path(__file__).parents[1] / "binaries"

PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
}
"""Program and the Go package it is built from; `go.mod` pins the versions."""

FLAGS = ["-trimpath", "-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion={version}"]
"""Small and the same everywhere. Without the version kube-apiserver calls itself v0.0.0."""


class MissingBinariesError(Exception):
    """The programs are not there, and why; never a reason to skip."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """The three programs."""

    etcd: Path
    kube_apiserver: Path
    kube_scheduler: Path


def find_binaries() -> Binaries:
    """The programs, where they have been built or KUBEBUILDER_ASSETS names them.

    Raises MissingBinariesError with what to do about it.
    """
    if folder := os.environ.get("KUBEBUILDER_ASSETS"):
        return _in_folder(Path(folder), "KUBEBUILDER_ASSETS: unset it to have them built with Go")
    return _in_folder(_cache_folder(), "the cache: `make e2e` builds them")


def build_binaries() -> Binaries:
    """Build what `find_binaries` would not find. Safe to repeat, and beside another build.

    Raises MissingBinariesError where Go is missing or a build fails.
    """
    if not os.environ.get("KUBEBUILDER_ASSETS") and not _cache_folder().exists():
        _build(_cache_folder())
    return find_binaries()


def _in_folder(folder: Path, source: str) -> Binaries:
    missing = [name for name in PACKAGES if not os.access(folder / name, os.X_OK)]
    if missing:
        raise MissingBinariesError(f"{', '.join(missing)} not in {folder}, from {source}")
    return Binaries(*(folder / name for name in PACKAGES))


def _cache_folder() -> Path:
    """Another folder for everything that changes the programs; nothing in it is ever rebuilt."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    go = _go("env", "GOVERSION", "GOOS", "GOARCH")
    sums = (MODULE / "go.mod").read_text() + (MODULE / "go.sum").read_text()
    key = hashlib.sha256("\n".join([go, sums, *FLAGS]).encode()).hexdigest()[:16]
    return Path(cache) / "autoscale-enforcer" / "e2e" / key


def _build(folder: Path) -> None:
    found = re.search(r"k8s.io/kubernetes (v[0-9.]+)", (MODULE / "go.mod").read_text())
    version = found.group(1) if found else "v0.0.0"
    flags = [flag.format(version=version) for flag in FLAGS]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as building:
        for name, package in PACKAGES.items():
            _go("build", *flags, "-o", f"{building}/{name}", package)
        if not folder.exists():
            # One rename, so that a folder that exists is whole. Not the temporary folder itself,
            # which nobody but us may read.
            whole = Path(building) / "whole"
            whole.mkdir()
            for name in PACKAGES:
                (Path(building) / name).rename(whole / name)
            whole.rename(folder)


def _go(*args: str) -> str:
    if shutil.which("go") is None:
        raise MissingBinariesError(
            "Go is missing, and KUBEBUILDER_ASSETS is not set: install Go, or name a folder that"
            f" holds {', '.join(PACKAGES)}"
        )
    environ = os.environ | {"CGO_ENABLED": "0"}
    done = subprocess.run(
        ["go", *args], cwd=MODULE, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MissingBinariesError(f"go {' '.join(args)} failed:\n{done.stderr}")
    return done.stdout


def main() -> None:
    began = time.monotonic()
    try:
        found = build_binaries()
    except MissingBinariesError as error:
        sys.exit(str(error))
    sys.stdout.write(f"{found.etcd.parent}, after {time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main()
