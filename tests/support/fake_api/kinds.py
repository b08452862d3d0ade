"""Which resources there are, and what a path asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource."""

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def head(self) -> bytes:
        """What an object begins with where it does not stand in a list."""
        return f'{{"kind":"{self.name}","apiVersion":"{self.api_version}",'.encode()


CORE = (
    Kind("", "v1", "Namespace", "namespaces", namespaced=False),
    Kind("", "v1", "Node", "nodes", namespaced=False),
    Kind("", "v1", "Pod", "pods"),
    Kind("", "v1", "ConfigMap", "configmaps"),
    Kind("", "v1", "Event", "events"),
)
NEONVM = (
    Kind("vm.neon.tech", "v1", "VirtualMachine", "virtualmachines"),
    Kind("vm.neon.tech", "v1", "VirtualMachineMigration", "virtualmachinemigrations"),
)


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names; without a name all objects, of one namespace or of all."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        """As RBAC names it: `pods`, `pods/binding`."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural


def target_of(parts: list[str], kinds: dict[str, Kind]) -> Target | None:
    """What the parts of a path name; None: nothing that is served."""
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    kind = kinds.get(rest[0]) if rest else None
    if kind is None or (kind.group, kind.version) != (group, version) or len(rest) > 3:
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    if name and kind.namespaced and not namespace:
        return None
    return Target(kind, namespace, name, subresource)
