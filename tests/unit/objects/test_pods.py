"""Pods as facts."""

from __future__ import annotations

from typing import Any

import pytest

from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import NodeName, PodUid
from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.objects.decode import convert, decode
from autoscale_enforcer.objects.pods import read_pod
from autoscale_enforcer.objects.shapes import PodObject
from tests.unit.objects.make import container, pod, pod_json, vm_metadata


def test_read_pod_gives_what_the_object_says() -> None:
    metadata = {"labels": {"app": "web"}, "deletionTimestamp": "2026-11-30T01:28:44Z"}

    fact = read_pod(pod(container("1", "1Gi"), metadata=metadata, nodeName="n1"))

    assert fact == PodFact(
        uid=PodUid("u1"),
        namespace="default",
        name="web-0",
        resource_version="7",
        node=NodeName("n1"),
        deleting=True,
        requests=Resources(1000, 1 << 30),
        labels={"app": "web"},
    )
    assert not fact.is_vm


def test_read_pod_takes_null_for_empty_everywhere() -> None:
    """Field report 9."""
    text = (
        b'{"metadata": {"uid": "u1", "name": "p", "namespace": null, "annotations": null,'
        b' "labels": null, "ownerReferences": null, "deletionTimestamp": null,'
        b' "resourceVersion": null}, "spec": {"containers": null, "initContainers": null,'
        b' "overhead": null, "nodeName": null, "resources": null}, "status": {"phase": null,'
        b' "conditions": null, "containerStatuses": null, "allocatedResources": null}}'
    )

    fact = read_pod(decode(text, PodObject))

    assert (fact.namespace, fact.node, fact.requests, fact.labels) == ("default", None, NOTHING, {})
    assert not fact.deleting
    assert read_pod(decode(b'{"metadata": {"uid": "u1", "name": "p"}}', PodObject)) == fact


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_needs_nothing_however_broken(phase: str) -> None:
    fact = read_pod(pod(container("abc"), status={"phase": phase}, nodeName="n1"))

    assert fact.finished
    assert fact.requests == NOTHING


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", ""])
def test_other_phases_are_not_finished(phase: str) -> None:
    assert not read_pod(pod(container(1), status={"phase": phase})).finished


@pytest.mark.parametrize("autoscaling", [True, False])
def test_requests_that_cannot_be_read_are_an_error_with_path(autoscaling: bool) -> None:
    """Field report 25: a pod that asks for `abc` CPU."""
    for metadata in ({}, vm_metadata(autoscaling=autoscaling)):
        with pytest.raises(ObjectError) as refusal:
            read_pod(pod(container("abc"), metadata=metadata))
        assert refusal.value.path == "spec.containers[0].resources.requests.cpu"
        assert refusal.value.reason == "'abc' is not a quantity"


@pytest.mark.parametrize("field", ["uid", "name"])
def test_a_pod_without_identity_is_refused(field: str) -> None:
    source = pod_json(container(1))
    del source["metadata"][field]

    with pytest.raises(ObjectError) as refusal:
        read_pod(convert(source, PodObject))
    assert refusal.value.path == f"metadata.{field}"


@pytest.mark.parametrize(
    ("metadata", "spec", "path"),
    [
        ({"uid": "u 1"}, {}, "metadata.uid"),
        ({"uid": "-"}, {}, "metadata.uid"),
        ({"uid": "u" * 129}, {}, "metadata.uid"),
        ({"name": "a/b"}, {}, "metadata.name"),
        ({"name": "a\nb"}, {}, "metadata.name"),
        ({"namespace": "a b"}, {}, "metadata.namespace"),
        ({"resourceVersion": "7 8"}, {}, "metadata.resourceVersion"),
        ({"resourceVersion": "v7"}, {}, "metadata.resourceVersion"),
        ({"resourceVersion": "-7"}, {}, "metadata.resourceVersion"),
        ({"resourceVersion": "9" * 21}, {}, "metadata.resourceVersion"),
        ({}, {"nodeName": "n 1"}, "spec.nodeName"),
        ({}, {"nodeName": "-"}, "spec.nodeName"),
    ],
)
def test_a_pod_that_rows_could_not_hold_is_refused(
    metadata: dict[str, str], spec: dict[str, Any], path: str
) -> None:
    """Rows are values separated by spaces: such a pod was booked and read back as another."""
    with pytest.raises(ObjectError) as refusal:
        read_pod(pod(container(1), metadata=metadata, **spec))
    assert refusal.value.path == path


@pytest.mark.parametrize("version", ["", None])
def test_a_pod_may_have_no_version(version: str | None) -> None:
    assert read_pod(pod(container(1), metadata={"resourceVersion": version})).resource_version == ""
