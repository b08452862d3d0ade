"""The Go extender that we are measured against: small, pinned, and right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.peer_program import PEER

MODULE = Path(PEER.folder)
SOURCES = [each for each in MODULE.glob("*.go") if not each.name.endswith("_test.go")]


def test_peer_is_what_an_engineer_would_write_at_300_lines_at_most() -> None:
    lines = [line for each in SOURCES for line in each.read_text().splitlines()]

    assert 0 < len(lines) <= 300


def test_peer_decodes_kubernetes_own_types_with_the_standard_library_as_it_comes() -> None:
    text = "\n".join(each.read_text() for each in SOURCES)
    imported = set(re.findall(r'^\t(?:\w+ )?"([^"]+)"$', text, re.MULTILINE))

    assert {"encoding/json", "net/http", "k8s.io/kube-scheduler/extender/v1"} <= imported
    assert not imported & {"log", "log/slog", "runtime", "runtime/debug"}
    assert list(PEER.flags) == []
    assert dict(PEER.environ) == {}


def test_peer_is_of_the_release_that_the_e2e_tests_run() -> None:
    wanted = re.findall(r"^\s+(k8s\.io/\S+ v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    run = (MODULE.parents[1] / "tests/e2e/binaries/go.mod").read_text()

    assert len(wanted) == 3
    assert all(each in run for each in wanted)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_peer_passes_its_own_tests() -> None:
    PEER.go("test", "./...")
