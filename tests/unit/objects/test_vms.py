"""VM runner pods: who is one, and where its data comes from."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from autoscale_enforcer.model.facts import VmFact
from autoscale_enforcer.model.resources import NO_OVERCOMMIT, NOTHING, Overcommit, Resources
from autoscale_enforcer.model.rows import said_row
from autoscale_enforcer.objects.pods import read_pod
from autoscale_enforcer.objects.vms import vm_owner
from tests.unit.objects.make import VM_RESOURCES, container, owner, pod, vm, vm_metadata

GI = 1 << 30
RESOURCES = "vm.neon.tech/resources"
OVERCOMMIT = "vm.neon.tech/overcommit"
APPROVED = "internal.autoscaling.neon.tech/resources-approved"

PLUGGED = VmFact(
    name="vm-a",
    autoscaling=True,
    use=Resources(1000, 4 * GI),
    minimum=Resources(250, GI),
    maximum=Resources(4000, 16 * GI),
    slot_bytes=GI,
)


def problem_of(annotations: dict[str, Any]) -> str:
    fact = read_pod(pod(container(1), metadata=vm_metadata(annotations)))
    assert fact.vm is None
    assert fact.is_vm
    assert fact.requests == Resources(1000)  # it counts with these once bound
    return fact.problem


@pytest.mark.parametrize(
    ("owners", "name"),
    [
        ([owner("VirtualMachine", controller=True)], "vm-a"),
        ([owner("VirtualMachine", "vm.neon.tech/v2beta1")], "vm-a"),
        ([owner("VirtualMachineMigration", controller=True), owner("VirtualMachine")], "vm-a"),
        ([owner("VirtualMachine", controller=True), owner("VirtualMachineMigration")], "vm-a"),
        ([owner("VirtualMachineMigration", controller=True)], None),
        ([owner("VirtualMachine", "kubevirt.io/v1", controller=True)], None),
        ([owner("VirtualMachine", "vm.neon.tech.example.org/v1")], None),
        ([owner("VirtualMachine", "vm.neon.tech")], None),
        ([owner("ReplicaSet", "apps/v1", controller=True)], None),
        ([], None),
        (None, None),
    ],
)
def test_vm_owner_looks_at_kind_and_group(owners: object, name: str | None) -> None:
    """Field report 19: source and target of a migration are both VMs, label-only pods are not."""
    labelled = pod(metadata={"labels": {"vm.neon.tech/name": "vm-a"}, "ownerReferences": owners})

    assert vm_owner(labelled) == name
    assert read_pod(labelled).is_vm == (name is not None)


def test_read_pod_takes_the_vm_from_the_pods_annotation() -> None:
    fact = read_pod(pod(container("3"), metadata=vm_metadata()))

    assert fact.vm == PLUGGED
    assert fact.wanted == Resources(1000, 4 * GI)
    assert fact.problem == ""


def test_read_pod_prefers_the_annotation_to_the_vm_object() -> None:
    fact = read_pod(pod(metadata=vm_metadata(autoscaling=False)), vm())

    assert fact.vm is not None
    assert not fact.vm.autoscaling
    assert not fact.vm.from_vm_object
    assert fact.vm.vm_resource_version == ""


def test_read_pod_takes_the_vm_object_where_the_annotation_is_absent() -> None:
    labels = {"autoscaling.neon.tech/enabled": "true"}

    fact = read_pod(pod(metadata=vm_metadata({}, autoscaling=False)), vm(labels=labels))

    assert fact.vm is not None
    assert fact.vm.from_vm_object
    assert fact.vm.vm_resource_version == "99"
    assert fact.vm.autoscaling
    assert (fact.vm.use, fact.vm.maximum) == (PLUGGED.use, PLUGGED.maximum)


@pytest.mark.parametrize("value", ["", "True", "false", "1"])
def test_autoscaling_is_on_only_where_the_label_says_true(value: str) -> None:
    metadata = vm_metadata() | {"labels": {"autoscaling.neon.tech/enabled": value}}

    fact = read_pod(pod(metadata=metadata)).vm

    assert fact is not None
    assert not fact.autoscaling


@pytest.mark.parametrize(
    ("on_pod", "on_vm", "expected"),
    [
        ({"cpu": "1500m", "memory": "1"}, None, Overcommit(1500, 1000)),
        ({"cpu": 1.25}, {"memory": 2}, Overcommit(1250, 1000)),
        ({}, {"cpu": 2}, NO_OVERCOMMIT),
        (None, {"cpu": 2, "memory": 0.5}, NO_OVERCOMMIT),
        (None, None, NO_OVERCOMMIT),
    ],
)
def test_overcommit_of_a_pod_with_its_resources_is_the_pods(
    on_pod: object, on_vm: object, expected: Overcommit
) -> None:
    """The VM's counted too, for the leader only: a bind went by what the pod says."""
    annotations = {RESOURCES: VM_RESOURCES} | ({} if on_pod is None else {OVERCOMMIT: on_pod})
    of_vm = {} if on_vm is None else {OVERCOMMIT: json.dumps(on_vm)}

    fact = read_pod(pod(metadata=vm_metadata(annotations)), vm(annotations=of_vm)).vm

    assert fact is not None
    assert fact.overcommit == expected
    assert fact.vm_resource_version == ""


@pytest.mark.parametrize(
    ("on_pod", "expected"),
    [(None, Overcommit(2000, 500)), ({"cpu": 4}, Overcommit(4000, 1000))],
)
def test_overcommit_of_a_pod_without_its_resources_is_the_pods_else_the_vms(
    on_pod: object, expected: Overcommit
) -> None:
    annotations = {} if on_pod is None else {OVERCOMMIT: on_pod}
    of_vm = {OVERCOMMIT: json.dumps({"cpu": 2, "memory": 0.5})}

    fact = read_pod(pod(metadata=vm_metadata(annotations)), vm(annotations=of_vm)).vm

    assert fact is not None
    assert fact.overcommit == expected
    assert fact.vm_resource_version == "99"


@pytest.mark.parametrize(
    ("approved", "autoscaling", "expected"),
    [
        ({"vCPUs": "3", "mem": "12Gi"}, True, Resources(3000, 12 * GI)),
        ({"cpu": 3, "memory": "12Gi"}, True, Resources(3000, 12 * GI)),
        ({"vCPUs": "3", "mem": "12Gi"}, False, NOTHING),
    ],
)
def test_approved_is_read_for_autoscaled_vms(
    approved: object, autoscaling: bool, expected: Resources
) -> None:
    annotations = {RESOURCES: VM_RESOURCES, APPROVED: approved}

    fact = read_pod(pod(metadata=vm_metadata(annotations, autoscaling=autoscaling))).vm

    assert fact is not None
    assert fact.approved == expected


def test_use_outside_the_bounds_is_a_fact() -> None:
    resources = VM_RESOURCES | {"cpus": {"min": 1, "use": 9, "max": 4}}

    fact = read_pod(pod(metadata=vm_metadata({RESOURCES: resources}))).vm

    assert fact is not None
    assert fact.use.cpu == 9000


@pytest.mark.parametrize(
    ("resources", "path"),
    [
        ("{broken", ""),
        ("null", ""),
        ("[]", ""),
        ("{}", "memorySlotSize"),
        (VM_RESOURCES | {"memorySlotSize": "0"}, "memorySlotSize"),
        (VM_RESOURCES | {"memorySlotSize": "big"}, "memorySlotSize"),
        (VM_RESOURCES | {"cpus": None}, "cpus.use"),
        (VM_RESOURCES | {"cpus": 4}, "cpus"),
        (VM_RESOURCES | {"cpus": {"min": 1, "use": -1, "max": 4}}, "cpus.use"),
        (VM_RESOURCES | {"cpus": {"min": 5, "use": 4, "max": 4}}, "cpus"),
        (VM_RESOURCES | {"memorySlots": {"min": 1, "use": "4", "max": 4}}, "memorySlots.use"),
        (VM_RESOURCES | {"memorySlots": {"min": 1, "use": True, "max": 4}}, "memorySlots.use"),
        (VM_RESOURCES | {"memorySlots": {"min": -1, "use": 1, "max": 4}}, "memorySlots.min"),
        (VM_RESOURCES | {"memorySlots": {"min": 1, "use": 1, "max": 10**30}}, "memorySlots.max"),
        (VM_RESOURCES | {"memorySlots": {"min": 9, "use": 1, "max": 4}}, "memorySlots"),
    ],
)
def test_broken_resources_are_a_problem_that_names_the_annotation(
    resources: object, path: str
) -> None:
    """Field report 25: a nil dereference upstream."""
    problem = problem_of({RESOURCES: resources})

    where = f"metadata.annotations['{RESOURCES}']{'.' if path else ''}{path}: "
    assert problem.startswith(where)
    assert len(problem) > len(where)


def test_missing_resources_are_a_problem_that_names_annotation_and_vm() -> None:
    problem = problem_of({})

    assert (
        problem
        == f"metadata.annotations['{RESOURCES}']: missing, and VirtualMachine vm-a is not known"
    )


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (OVERCOMMIT, {"cpu": "0"}),
        (OVERCOMMIT, {"memory": "101"}),
        (OVERCOMMIT, "1.5"),
        (APPROVED, {"vCPUs": "3"}),
        (APPROVED, {"cpu": "x", "memory": "1Gi"}),
    ],
)
def test_other_broken_annotations_are_problems_too(key: str, text: object) -> None:
    problem = problem_of({RESOURCES: VM_RESOURCES, key: text})

    assert problem.startswith(f"metadata.annotations['{key}']")


def test_a_broken_vm_object_is_a_problem_that_names_it() -> None:
    broken = vm()
    assert broken.spec is not None
    broken.spec.guest = None

    fact = read_pod(pod(metadata=vm_metadata({})), broken)

    assert fact.problem == "VirtualMachine vm-a: spec.guest.memorySlotSize: missing"


def test_a_vm_version_that_rows_could_not_hold_is_a_problem() -> None:
    fact = read_pod(pod(container(1), metadata=vm_metadata({})), vm(resourceVersion="a b"))

    assert fact.problem == (
        "VirtualMachine vm-a: metadata.resourceVersion: must be a whole number of at most 20 digits"
    )


@pytest.mark.parametrize("version", ["", None])
def test_a_vm_without_a_version_leaves_no_gap_in_the_row(version: str | None) -> None:
    """An empty field made Lua, which reads words, take each field for the one before it."""
    row = said_row(
        read_pod(pod(container(1), metadata=vm_metadata({})), vm(resourceVersion=version))
    )

    assert row.vm_rv == "-"
    assert len(row.encode().split()) == len(fields(row))
