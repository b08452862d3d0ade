"""Fixtures of the end-to-end tests; every test below this folder is marked `e2e`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness.api import Api
from tests.e2e.harness.binaries import Binaries, MissingBinariesError, find_binaries
from tests.e2e.harness.control_plane import ControlPlane, Scheduler
from tests.e2e.harness.kubelet import KubeletStandIn
from tests.e2e.harness.service import Service, configure, deployed_account, make_own_pods
from tests.support.process import RUNNING
from tests.support.servers import Server

LIMIT_SECONDS = 120
"""Of a test that sets no limit of its own."""

LOG_BYTES = 20_000

StartScheduler = Callable[[dict[str, Any]], Scheduler]


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.e2e)
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(LIMIT_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows what the programs wrote."""
    report = yield
    if report.failed:
        report.sections += [(each.name, each.log(LOG_BYTES)) for each in RUNNING.values()]
    return report


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The three programs; fails where they are missing."""
    try:
        return find_binaries()
    except MissingBinariesError as error:
        pytest.fail(str(error))


@pytest.fixture(scope="session")
def _control_plane(binaries: Binaries) -> Iterator[ControlPlane]:
    with ControlPlane(binaries) as control_plane:
        yield control_plane


@pytest.fixture
async def control_plane(_control_plane: ControlPlane) -> ControlPlane:
    """The session's control plane, without nodes, pods and VMs; what else tests made stays.

    A test that kills parts of it, or needs a cluster of its own, opens ControlPlane(binaries).
    """
    async with _control_plane.api() as api:
        await api.empty()
    return _control_plane


@pytest.fixture
async def api(control_plane: ControlPlane) -> AsyncIterator[Api]:
    """The administrator's connection to `control_plane`."""
    async with control_plane.api() as api:
        yield api


@pytest.fixture
def start_scheduler(control_plane: ControlPlane) -> Iterator[StartScheduler]:
    """`start_scheduler(configuration)`: a kube-scheduler of `control_plane` for this test."""
    with ExitStack() as stack:
        yield lambda configuration: stack.enter_context(Scheduler(control_plane, configuration))


@pytest.fixture
async def kubelet(api: Api) -> AsyncIterator[KubeletStandIn]:
    """The stand-in for the kubelets of `control_plane`, at work."""
    async with KubeletStandIn(api) as kubelet:
        yield kubelet


@pytest.fixture
async def kubeconfig(control_plane: ControlPlane, api: Api) -> Path:
    """Of the account that the manifests give the service, with those rights and no others."""
    return control_plane.kubeconfig(await deployed_account(api))


@pytest.fixture
async def service(api: Api, kubeconfig: Path, valkey_server: Server) -> AsyncIterator[Service]:
    """Three replicas at work in `control_plane`, with a plain config and pods of their own."""
    await api.install_neonvm()
    await configure(api, {"scoring": {}})
    await make_own_pods(api)
    async with Service(valkey_server, kubeconfig) as service:
        yield service
