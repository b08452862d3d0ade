"""Where things are at the API server. A path may end in a query that selects."""

from __future__ import annotations

from urllib.parse import quote

from autoscale_enforcer.model.ids import NodeName, PodName

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
VIRTUAL_MACHINES = "/apis/vm.neon.tech/v1/virtualmachines"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
MIGRATIONS = "/apis/vm.neon.tech/v1/virtualmachinemigrations"

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


def node_path(name: NodeName) -> str:
    """One node."""
    return f"{NODES}/{_part(name)}"


def pod_path(name: PodName) -> str:
    """One pod, by `namespace/name`."""
    namespace, _, own = name.partition("/")
    return _namespaced("/api/v1", namespace, "pods", own)


def own_pods_path(namespace: str, selector: str) -> str:
    """The list of the pods in a namespace that a label selector picks."""
    path = f"/api/v1/namespaces/{_part(namespace)}/pods"
    return with_query(path, labelSelector=selector)


def pod_status_path(name: PodName) -> str:
    """The part of a pod that is not its spec, for a patch."""
    return f"{pod_path(name)}/status"


def binding_path(name: PodName) -> str:
    """Where a Binding of the pod is posted."""
    return f"{pod_path(name)}/binding"


def pods_on_path(node: NodeName) -> str:
    """The list of the pods bound to the node."""
    return with_query(PODS, fieldSelector=f"spec.nodeName={node}")


def virtual_machine_path(namespace: str, name: str) -> str:
    """One VirtualMachine."""
    return _namespaced("/apis/vm.neon.tech/v1", namespace, "virtualmachines", name)


def namespace_path(name: str) -> str:
    """One namespace."""
    return f"/api/v1/namespaces/{_part(name)}"


def one_config_map_path(namespace: str, name: str) -> str:
    """The list that holds this ConfigMap alone: what a right limited to its name may watch."""
    path = f"/api/v1/namespaces/{_part(namespace)}/configmaps"
    return with_query(path, fieldSelector=f"metadata.name={name}")


def with_query(path: str, **parameters: str) -> str:
    """The path with more parameters; those it has stay."""
    query = "&".join(f"{key}={quote(value, safe='')}" for key, value in parameters.items())
    return f"{path}{'&' if '?' in path else '?'}{query}" if query else path


def asked_for(verb: str, path: str) -> str:
    """`list pods`, `get nodes`, `create pods/binding`: the words of a right in RBAC."""
    parts = [part for part in path.partition("?")[0].split("/") if part]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    return f"{verb} {'/'.join([parts[0], *parts[2:]])}"


def _namespaced(api: str, namespace: str, plural: str, name: str) -> str:
    return f"{api}/namespaces/{_part(namespace)}/{plural}/{_part(name)}"


def _part(name: str) -> str:
    return quote(name, safe="")
