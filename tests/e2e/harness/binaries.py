"""Where etcd, kube-apiserver and kube-scheduler come from.

KUBEBUILDER_ASSETS when it is set, else built once with Go from `tests/e2e/binaries` and kept in the
user's cache. `python -m tests.e2e.harness.binaries` builds them; tests only look for them, for a
build takes longer than any test may.
"""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.go_modules import GoError, GoModule

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
    if not os.environ.get("KUBEBUILDER_ASSETS"):
        try:
            _module().build()
        except GoError as error:
            raise _missing(error) from error
    return find_binaries()


def _in_folder(folder: Path, source: str) -> Binaries:
    missing = [name for name in PACKAGES if not os.access(folder / name, os.X_OK)]
    if missing:
        raise MissingBinariesError(f"{', '.join(missing)} not in {folder}, from {source}")
    return Binaries(*(folder / name for name in PACKAGES))


def _cache_folder() -> Path:
    try:
        return _module().cache_folder()
    except GoError as error:
        raise _missing(error) from error


def _module() -> GoModule:
    found = re.search(r"k8s.io/kubernetes (v[0-9.]+)", (MODULE / "go.mod").read_text())
    version = found.group(1) if found else "v0.0.0"
    return GoModule(
        folder=MODULE,
        name="e2e",
        packages=PACKAGES,
        sources=["go.mod", "go.sum"],
        flags=FLAGS,
        words={"version": version},
        environ={"CGO_ENABLED": "0"},
    )


def _missing(error: GoError) -> MissingBinariesError:
    return MissingBinariesError(
        f"{error}, and KUBEBUILDER_ASSETS is not set: install Go, or name a folder that holds"
        f" {', '.join(PACKAGES)}"
    )


def main() -> None:
    began = time.monotonic()
    try:
        found = build_binaries()
    except MissingBinariesError as error:
        sys.exit(str(error))
    sys.stdout.write(f"{found.etcd.parent}, after {time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main()
