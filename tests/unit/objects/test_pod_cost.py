"""Pod requests by the scheduler's rule: field reports 16 and 17, and Kubernetes' own answers."""

from __future__ import annotations

from typing import Any

import pytest

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.resources import Resources
from autoscale_enforcer.objects.decode import convert
from autoscale_enforcer.objects.pod_cost import pod_requests
from autoscale_enforcer.objects.shapes import PodObject
from tests.unit.objects.make import DATA, amounts, container, json_lines, pod, sidecar

MI = 1 << 20
INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]


def resized(name: str = "c", allocated: object = None, in_force: object = None) -> dict[str, Any]:
    status: dict[str, Any] = {"name": name}
    if allocated is not None:
        status["allocatedResources"] = amounts(allocated)
    if in_force is not None:
        status["resources"] = {"requests": amounts(in_force)}
    return status


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            pod(
                container("100m", "10Mi"),
                initContainers=[sidecar("100m", "20Mi"), container("200m", "5Mi")],
                overhead=amounts("50m", "1Mi"),
            ),
            Resources(350, 31 * MI),
            id="A: sidecar before the init container",
        ),
        pytest.param(
            pod(
                container("100m", "10Mi"),
                initContainers=[container("200m", "64Mi"), sidecar("100m", "20Mi")],
            ),
            Resources(200, 64 * MI),
            id="B: sidecar after the init container",
        ),
        pytest.param(
            pod(container(1, "8Mi"), initContainers=[container(2, "4Mi")]),
            Resources(2000, 8 * MI),
            id="C: hungry init container, in CPU only",
        ),
        pytest.param(
            pod(
                container("100m"),
                initContainers=[sidecar("100m"), sidecar("200m"), container("300m"), sidecar(1)],
            ),
            Resources(1400, 0),
            id="sidecars run together with the containers",
        ),
        pytest.param(
            pod(container("100m"), initContainers=[container("300m", restartPolicy="OnFailure")]),
            Resources(300, 0),
            id="another restart policy is no sidecar",
        ),
        pytest.param(pod(container(), container()), Resources(), id="no requests"),
        pytest.param(
            pod(container("500u", "300m"), container("500u", "300m")),
            Resources(1, 1),
            id="rounded after adding up",
        ),
    ],
)
def test_pod_requests_counts_init_containers_sidecars_and_overhead(
    spec: PodObject, expected: Resources
) -> None:
    """Field report 16."""
    assert pod_requests(spec) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            pod(container(1), status={"containerStatuses": [resized(allocated=1, in_force=4)]}),
            Resources(4000),
            id="a: lowered, the node has not followed",
        ),
        pytest.param(
            pod(container(1), status={"containerStatuses": [resized(allocated=4, in_force=1)]}),
            Resources(4000),
            id="a: lowered, still allocated",
        ),
        pytest.param(
            pod(container(1), status={"containerStatuses": [resized(allocated=1, in_force=1)]}),
            Resources(1000),
            id="a: lowered and followed",
        ),
        pytest.param(
            pod(container(4), status={"containerStatuses": [resized(allocated=1, in_force=1)]}),
            Resources(4000),
            id="b: raised, pending",
        ),
        pytest.param(
            pod(
                container(40),
                status={
                    "containerStatuses": [resized(allocated=1, in_force=1)],
                    "conditions": INFEASIBLE,
                },
            ),
            Resources(1000),
            id="c: infeasible",
        ),
        pytest.param(
            pod(container(40), status={"conditions": INFEASIBLE}),
            Resources(40000),
            id="c: infeasible without a status",
        ),
        pytest.param(
            pod(
                container("500m", "1Gi"),
                container("500m", "1Gi"),
                resources={"requests": amounts(2)},
                overhead=amounts("100m", "64Mi"),
            ),
            Resources(2100, 2214592512),
            id="d: pod-level CPU, overhead on top",
        ),
        pytest.param(
            pod(
                container(1),
                initContainers=[sidecar(1, name="s"), container(1, name="i")],
                status={"initContainerStatuses": [resized("s", in_force=3), resized("i", 9)]},
            ),
            Resources(4000),
            id="a sidecar is resized, an init container is not",
        ),
        pytest.param(
            pod(container(1), status={"containerStatuses": [resized(allocated=3)]}),
            Resources(3000),
            id="an allocation counts alone",
        ),
        pytest.param(
            pod(
                container(1, "1Gi"),
                status={"containerStatuses": [resized(allocated=3)], "conditions": INFEASIBLE},
            ),
            Resources(3000, 1024 * MI),
            id="an infeasible resize leaves what the node does not report",
        ),
        pytest.param(
            pod(
                container(1),
                resources={"requests": amounts(2)},
                status={"resources": {"requests": amounts(5)}, "allocatedResources": amounts(4)},
            ),
            Resources(5000),
            id="pod-level resize",
        ),
        pytest.param(
            pod(container(1), status={"resources": {"requests": amounts(5)}}),
            Resources(1000),
            id="a pod-level status without a pod-level request",
        ),
    ],
)
def test_pod_requests_follows_resizes_and_pod_level_requests(
    spec: PodObject, expected: Resources
) -> None:
    """Field report 17."""
    assert pod_requests(spec) == expected


LIMITED = {"name": "c", "resources": {"limits": amounts("300m", "64Mi")}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(pod(LIMITED), Resources(300, 64 * MI), id="limits only"),
        pytest.param(
            pod({"resources": {"limits": amounts(2, "64Mi"), "requests": amounts("0")}}),
            Resources(0, 64 * MI),
            id="each resource on its own, a request of zero is one",
        ),
        pytest.param(
            pod(container(), resources={"limits": amounts(2)}),
            Resources(2000),
            id="pod-level limit",
        ),
        pytest.param(
            pod(container("100m"), resources={"limits": amounts(2, "1Mi")}),
            Resources(100, MI),
            id="pod-level limit yields to the containers' requests",
        ),
        pytest.param(
            pod(LIMITED, resources={"limits": amounts(2, "1Gi"), "requests": amounts(1)}),
            Resources(1000, 64 * MI),
            id="pod-level request and limit",
        ),
    ],
)
def test_pod_requests_takes_the_limit_where_there_is_no_request(
    spec: PodObject, expected: Resources
) -> None:
    """The API server fills these in; a file written by hand has not been through it."""
    assert pod_requests(spec) == expected


def test_pod_requests_ignores_other_resources_however_broken() -> None:
    requests = {"cpu": "1", "nvidia.com/gpu": {"no": "amount"}, "ephemeral-storage": "abc"}

    assert pod_requests(pod({"resources": {"requests": requests}})) == Resources(1000)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (pod(container(), container("abc")), "spec.containers[1].resources.requests.cpu"),
        (pod(container(1, {})), "spec.containers[0].resources.requests.memory"),
        (pod({"resources": {"limits": {"cpu": -1}}}), "spec.containers[0].resources.limits.cpu"),
        (
            pod(initContainers=[container("1e999999999")]),
            "spec.initContainers[0].resources.requests.cpu",
        ),
        (pod(initContainers=[sidecar(True)]), "spec.initContainers[0].resources.requests.cpu"),
        (pod(overhead={"memory": "much"}), "spec.overhead.memory"),
        (pod(resources={"requests": {"cpu": "x"}}), "spec.resources.requests.cpu"),
        (
            pod(container("y"), resources={"limits": {"cpu": 1}}),
            "spec.containers[0].resources.requests.cpu",
        ),
        (
            pod(container(), status={"containerStatuses": [{}, resized(allocated="x")]}),
            "status.containerStatuses[1].allocatedResources.cpu",
        ),
        (
            pod(resources={"requests": amounts(1)}, status=resized(in_force="x")),
            "status.resources.requests.cpu",
        ),
        (pod(*[container("1000000")] * 2), "spec"),
    ],
)
def test_pod_requests_names_the_quantity_that_cannot_be_read(spec: PodObject, path: str) -> None:
    with pytest.raises(ObjectError) as refusal:
        pod_requests(spec)
    assert refusal.value.path == path


def test_pod_requests_agrees_with_kubernetes() -> None:
    """Recorded from component-helpers v0.36.2 with kube-scheduler's options."""
    for line in json_lines(DATA / "kubernetes" / "pods.jsonl"):
        expected = Resources(line["cpuMilli"], line["memoryBytes"])
        assert pod_requests(convert(line["pod"], PodObject)) == expected, line["pod"]
