"""What pods are read with: the VMs they run and the migrations that move them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from autoscale_enforcer.cluster.kubernetes.source import VmKey, vm_key
from autoscale_enforcer.model.facts import PodFact
from autoscale_enforcer.model.ids import PodName, PodUid, pod_name
from autoscale_enforcer.model.rows import NO_WORD, newer
from autoscale_enforcer.objects.pods import read_pod
from autoscale_enforcer.objects.shapes import MigrationObject, PodObject, VmObject
from autoscale_enforcer.objects.vms import VM_NAME_LABEL

MIGRATION_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class World:
    """The objects behind pods, as the watches have them. Of plain pods nothing is kept."""

    _vms: dict[VmKey, VmObject] = field(default_factory=dict)
    _pods: dict[VmKey, dict[PodUid, PodObject]] = field(default_factory=dict)
    _keys: dict[PodUid, VmKey] = field(default_factory=dict)
    """Which VM each of those runs."""
    _moving: dict[VmKey, PodName] = field(default_factory=dict)
    """Source pod of each migration that has not ended, by the migration's namespace and name."""
    _migrations: dict[VmKey, str] = field(default_factory=dict)
    """The version of each migration, ended ones included."""

    def read_pod(self, pod: PodObject) -> PodFact:
        """A pod with its VM and its part in a migration, remembered where it runs a VM.

        ObjectError where it cannot be read.
        """
        fact, key = self.look_at(pod), vm_key(pod)
        if key[1]:
            self._pods.setdefault(key, {})[fact.uid] = pod
            self._keys[fact.uid] = key
        return fact

    def look_at(self, pod: PodObject) -> PodFact:
        """As `read_pod`, and nothing is remembered."""
        key = vm_key(pod)
        if not key[1]:
            return read_pod(pod, labels={})
        fact = read_pod(pod, self._vms.get(key), labels={VM_NAME_LABEL: key[1]})
        moves = fact.full_name in self._moving.values()
        return replace(fact, migration_source=True) if moves else fact

    def read_again(self, fact: PodFact) -> PodFact:
        """The pod with its VM as that is now, where it runs one; else the fact itself.

        A list takes seconds: a VM may have changed since its pod was read, and so may the pod.
        """
        key = self._keys.get(fact.uid)
        if key is None:
            return fact
        known = self.look_at(self._pods[key][fact.uid])
        return fact if newer(fact.resource_version, known.resource_version) else known

    def forget_pod(self, uid: PodUid) -> None:
        """It is gone: nothing that happens to its VM concerns it."""
        key = self._keys.pop(uid, None)
        if key is None:
            return
        pods = self._pods[key]
        del pods[uid]
        if not pods:
            del self._pods[key]

    def keep_pods(self, uids: AbstractSet[PodUid]) -> None:
        """There are no others: whatever a VM does later brings none of those back."""
        for uid in self._keys.keys() - uids:
            self.forget_pod(uid)

    def pods_of(self, key: VmKey) -> list[PodFact]:
        """The VM's pods, read again."""
        return [self.read_pod(pod) for pod in list(self._pods.get(key, {}).values())]

    def replace_vms(self, vms: Iterable[VmObject]) -> set[VmKey]:
        """All there are; those whose pods have to be read again."""
        listed = {key_of(vm): vm for vm in vms}
        changed = {
            key
            for key in listed.keys() | self._vms.keys()
            if _version(listed.get(key)) != _version(self._vms.get(key))
        }
        self._vms = listed
        return changed

    def merge_vms(self, listed: Iterable[VmObject], known: Mapping[VmKey, str]) -> set[VmKey]:
        """What a list shows that the watch has not told; those whose pods have to be read again.

        `known` are `vm_versions` from before the list: one that it lacks is gone if it is still
        as it was then.
        """
        there, changed = {key_of(vm): vm for vm in listed}, set[VmKey]()
        for key, vm in there.items():
            if newer(_version(vm), _version(self._vms.get(key))):
                changed.add(self.change_vm(vm, gone=False))
        for key in known.keys() - there.keys():
            if _version(self._vms.get(key)) == known[key]:
                changed.add(self.change_vm(self._vms[key], gone=True))
        return changed

    def vm_versions(self) -> dict[VmKey, str]:
        """The version of each VM, as the watch has it."""
        return {key: _version(vm) for key, vm in self._vms.items()}

    def change_vm(self, vm: VmObject, *, gone: bool) -> VmKey:
        """One has changed, or is gone."""
        key = key_of(vm)
        if gone:
            self._vms.pop(key, None)
        else:
            self._vms[key] = vm
        return key

    def replace_migrations(self, migrations: Iterable[MigrationObject]) -> set[VmKey]:
        """All there are; VMs whose pods have to be read again, those of ended ones included."""
        known, self._moving, self._migrations = self._moving, {}, {}
        changed = {key for each in migrations if (key := self.change_migration(each, gone=False))}
        ended = {name for key, name in known.items() if key not in self._moving}
        return changed | self._with_pods(ended)

    def merge_migrations(
        self, listed: Iterable[MigrationObject], known: Mapping[VmKey, str]
    ) -> set[VmKey]:
        """As `merge_vms`, with `migration_versions` from before the list."""
        there, changed = {key_of(each): each for each in listed}, set[VmKey]()
        for key, migration in there.items():
            if newer(_version(migration), self._migrations.get(key, NO_WORD)):
                vm = self.change_migration(migration, gone=False)
                changed |= {vm} if vm else set()
        gone = {
            key for key in known.keys() - there.keys() if self._migrations.get(key) == known[key]
        }
        ended = {self._moving.pop(key) for key in gone if key in self._moving}
        for key in gone:
            del self._migrations[key]
        return changed | self._with_pods(ended)

    def migration_versions(self) -> dict[VmKey, str]:
        """The version of each migration, as the watch has it."""
        return dict(self._migrations)

    def change_migration(self, migration: MigrationObject, *, gone: bool) -> VmKey | None:
        """One has changed, or is gone; the VM whose pods have to be read again."""
        key = key_of(migration)
        status = migration.status
        source = status.source_pod_name if status else None
        self._migrations.pop(key, None)
        if not gone and (version := _version(migration)) != NO_WORD:
            self._migrations[key] = version
        if gone or not source or (status and status.phase in MIGRATION_ENDED):
            self._moving.pop(key, None)
        else:
            self._moving[key] = pod_name(key[0], source)
        vm = migration.spec.vm_name if migration.spec else None
        return (key[0], vm) if vm else None

    def _with_pods(self, names: AbstractSet[PodName]) -> set[VmKey]:
        """VMs that run in any of these pods."""
        return {key for key, pods in self._pods.items() if names & _names(pods)}


def key_of(found: VmObject | MigrationObject) -> VmKey:
    """Namespace and name of an object."""
    metadata = found.metadata
    return ((metadata.namespace if metadata else None) or "", (metadata and metadata.name) or "")


def _names(pods: dict[PodUid, PodObject]) -> set[PodName]:
    return {
        pod_name(pod.metadata.namespace or "", pod.metadata.name or "")
        for pod in pods.values()
        if pod.metadata
    }


def _version(found: VmObject | MigrationObject | None) -> str:
    return (found and found.metadata and found.metadata.resource_version) or NO_WORD
