"""What is remembered beside pods: their VMs, the migrations that move them, and no more."""

from __future__ import annotations

import pytest
from tests.support.cluster_double import pod_json, runs_vm, vm_resources

from autoscale_enforcer.cluster.kubernetes.world import World
from autoscale_enforcer.errors import ObjectError
from autoscale_enforcer.model.ids import PodUid
from autoscale_enforcer.objects.decode import convert
from autoscale_enforcer.objects.shapes import MigrationObject, PodObject, VmObject

KEY = ("default", "vm-a")
U1 = PodUid("u1")


def plain(uid: str) -> PodObject:
    return convert(pod_json(uid), PodObject)


def runner(uid: str, *, vm: str = "vm-a", rv: str = "1") -> PodObject:
    """A pod that says of its VM only which one it is."""
    return convert(pod_json(uid, rv=rv, metadata=runs_vm(vm=vm, annotations={})), PodObject)


def vm(use: int, *, name: str = "vm-a", rv: str = "5") -> VmObject:
    named = {"name": name, "namespace": "default", "resourceVersion": rv}
    return convert({"metadata": named, "spec": {"guest": vm_resources(use)}}, VmObject)


def migration(
    source: str = "", phase: str = "Running", *, name: str = "m", rv: str = ""
) -> MigrationObject:
    named = {"name": name, "namespace": "default", **({"resourceVersion": rv} if rv else {})}
    status = {"phase": phase, "sourcePodName": source}
    return convert(
        {"metadata": named, "spec": {"vmName": "vm-a"}, "status": status}, MigrationObject
    )


def test_a_pod_is_read_with_its_vm() -> None:
    world = World()
    assert "not known" in world.read_pod(runner("u1")).problem

    assert world.change_vm(vm(3), gone=False) == KEY

    (fact,) = world.pods_of(KEY)
    assert fact.vm is not None
    assert (fact.vm.use.cpu, fact.labels) == (3000, {"vm.neon.tech/name": "vm-a"})


def test_a_pod_that_is_only_looked_at_is_not_remembered() -> None:
    world = World()
    world.change_vm(vm(3), gone=False)

    fact = world.look_at(runner("u1"))

    assert fact.vm is not None
    assert fact.vm.use.cpu == 3000
    assert world.pods_of(KEY) == []


def test_a_pod_of_a_list_is_read_again_as_the_newer_of_what_is_known() -> None:
    world = World()
    world.read_pod(runner("u1", rv="20"))
    older, newer = world.look_at(runner("u1", rv="9")), world.look_at(runner("u1", rv="30"))

    assert world.read_again(older).resource_version == "20"
    assert world.read_again(newer).resource_version == "30"


def test_a_list_of_vms_tells_what_the_watch_has_not() -> None:
    world = World()
    for each in (vm(1, name="same"), vm(1, name="older"), vm(1, name="gone"), vm(1, name="later")):
        world.change_vm(each, gone=False)
    known = world.vm_versions()
    world.change_vm(vm(2, name="later", rv="6"), gone=False)  # told while the list was read
    world.change_vm(vm(2, name="newest", rv="9"), gone=False)
    listed = [vm(1, name="same"), vm(4, name="older", rv="7"), vm(1, name="missed")]

    changed = world.merge_vms([*listed, vm(1, name="newest", rv="8")], known)

    assert changed == {("default", name) for name in ("older", "gone", "missed")}
    assert world.vm_versions() == {
        ("default", "same"): "5",
        ("default", "older"): "7",
        ("default", "later"): "6",
        ("default", "newest"): "9",
        ("default", "missed"): "5",
    }


def test_a_list_of_migrations_tells_what_the_watch_has_not() -> None:
    world = World()
    world.read_pod(runner("u1"))
    world.change_migration(migration("u1", name="gone", rv="3"), gone=False)
    known = world.migration_versions()
    world.change_migration(migration("u1", "Succeeded", name="ended", rv="9"), gone=False)
    assert world.pods_of(KEY)[0].migration_source

    changed = world.merge_migrations([migration("u1", name="ended", rv="8")], known)

    assert changed == {KEY}
    assert not world.pods_of(KEY)[0].migration_source
    again = world.merge_migrations([migration("u1", name="missed", rv="11")], known)
    assert (again, world.pods_of(KEY)[0].migration_source) == ({KEY}, True)


def test_nothing_is_kept_of_plain_pods() -> None:
    world = World()
    for number in range(10):
        assert world.read_pod(plain(f"u{number}")).labels == {}

    assert world == World()


def test_what_is_forgotten_leaves_nothing() -> None:
    world = World()
    world.read_pod(runner("u1"))
    world.read_pod(runner("u2"))

    world.forget_pod(U1)
    assert [fact.uid for fact in world.pods_of(KEY)] == ["u2"]
    world.keep_pods(set())
    world.forget_pod(U1)

    assert world == World()


def test_a_pod_that_cannot_be_read_is_not_kept() -> None:
    world = World()
    bad = convert(pod_json("u1", cpu="abc", metadata=runs_vm()), PodObject)

    with pytest.raises(ObjectError):
        world.read_pod(bad)

    assert world == World()


def test_read_again_takes_in_what_has_changed_since() -> None:
    world = World()
    early, other = world.read_pod(runner("u1")), world.read_pod(plain("u2"))
    world.change_vm(vm(2), gone=False)

    late = world.read_again(early)

    assert (early.vm, late.vm and late.vm.use.cpu) == (None, 2000)
    assert world.read_again(other) is other


def test_a_list_of_vms_names_those_that_differ() -> None:
    world = World()
    assert world.replace_vms([vm(1), vm(1, name="b")]) == {KEY, ("default", "b")}

    assert world.replace_vms([vm(1), vm(1, name="b", rv="6")]) == {("default", "b")}
    assert world.replace_vms([vm(1)]) == {("default", "b")}
    assert world.change_vm(vm(1), gone=True) == KEY
    assert world == World()


def test_the_source_of_a_migration_is_known_until_it_ends() -> None:
    world = World()
    world.read_pod(runner("u1"))
    world.read_pod(runner("u2"))

    def sources() -> list[str]:
        return [fact.name for fact in world.pods_of(KEY) if fact.migration_source]

    assert world.change_migration(migration("u1"), gone=False) == KEY
    assert sources() == ["u1"]
    world.change_migration(migration("u1", "Failed"), gone=False)
    assert sources() == []
    world.change_migration(migration("u2"), gone=False)
    assert sources() == ["u2"]
    world.change_migration(migration("u2"), gone=True)
    assert sources() == []


def test_a_list_of_migrations_names_the_vms_of_those_that_have_ended_too() -> None:
    world = World()
    world.read_pod(runner("u1"))
    world.read_pod(runner("u9", vm="vm-b"))
    world.change_migration(migration("u1"), gone=False)
    world.change_migration(migration("u9", name="other"), gone=False)

    assert world.replace_migrations([migration("u1")]) == {KEY, ("default", "vm-b")}
    assert world.replace_migrations([]) == {KEY}


def test_a_migration_without_a_source_or_a_vm_concerns_nobody() -> None:
    world = World()
    assert world.change_migration(migration(""), gone=False) == KEY
    assert world.change_migration(MigrationObject(), gone=False) is None

    assert world == World()
