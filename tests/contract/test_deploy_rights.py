"""RBAC in the manifests: exactly what the code asks of the API server, and nothing more."""

from __future__ import annotations

import re

from autoscale_enforcer.cluster.kubernetes import config_map, paths
from autoscale_enforcer.model.ids import NodeName, PodName
from tests.support.manifests import (
    DEPLOY,
    ENFORCER,
    NAME_LABEL,
    NAMESPACE,
    SCHEDULER,
    Object,
    one,
    scheduler_config,
)

SOURCES = DEPLOY.parent / "service" / "autoscale_enforcer" / "cluster"
NODE, POD = NodeName("node"), PodName("some-namespace/pod")
OWN_POD = PodName(f"{NAMESPACE}/pod")
CALLS: dict[str, list[tuple[str, str]]] = {
    "NODES": [("list", paths.NODES), ("watch", paths.NODES)],
    "node_path": [("get", paths.node_path(NODE))],
    "PODS": [("list", paths.PODS), ("watch", paths.PODS)],
    "pods_on_path": [("list", paths.pods_on_path(NODE))],
    "pod_path": [("get", paths.pod_path(POD)), ("patch", paths.pod_path(OWN_POD))],
    "own_pods_path": [("list", paths.own_pods_path(NAMESPACE, "a=b"))],
    "pod_status_path": [("patch", paths.pod_status_path(POD))],
    "binding_path": [("create", paths.binding_path(POD))],
    "namespace_path": [("get", paths.namespace_path(NAMESPACE))],
    "one_config_map_path": [
        (verb, paths.one_config_map_path(config_map.NAMESPACE, config_map.NAME))
        for verb in ("list", "watch")
    ],
    "VIRTUAL_MACHINES": [(verb, paths.VIRTUAL_MACHINES) for verb in ("list", "watch")],
    "virtual_machine_path": [("get", paths.virtual_machine_path("some-namespace", "vm"))],
    "MIGRATIONS": [(verb, paths.MIGRATIONS) for verb in ("list", "watch")],
    "REVIEWS": [],  # only where agents must bring tokens: the right is in deploy/README.md
}
"""What the service does at each path of `paths`, by the path's name there."""

BY_NAME = {"namespaces", "configmaps"}
"""Asked for by a name that is known beforehand, so that the right may be for that name alone."""


def bound_roles(manifests: list[Object], account: str) -> set[tuple[str, str]]:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    return {
        (each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in manifests
        if each["kind"].endswith("RoleBinding") and each["subjects"] == [subject]
    }


def granted(role: Object) -> set[str]:
    """`get nodes`, `list configmaps scheduler-plugin-config`."""
    return {
        " ".join([verb, resource, *rule.get("resourceNames", [])])
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed(name: str, verb: str, path: str) -> tuple[bool, str]:
    """Whether it is for our namespace alone, and the right in the words of `granted`."""
    words = paths.asked_for(verb, path)
    resource = words.split()[1]
    if name == "namespace_path":
        words += f" {NAMESPACE}"
    elif resource in BY_NAME:
        words += f" {config_map.NAME}"
    is_local = resource == "configmaps" or words == "patch pods"
    return is_local, words


def test_calls_are_those_of_the_code() -> None:
    """A new path is a new right: add it to CALLS and to the role."""
    used = set()
    for file in SOURCES.rglob("*.py"):
        if file.name != "paths.py":
            used |= set(re.findall(r"\b(\w+_path|[A-Z_]+)\b", file.read_text()))
    there = {
        name
        for name, value in vars(paths).items()
        if (name.endswith("_path") or str(value).startswith("/api")) and name[0] != "_"
    }

    assert CALLS.keys() == used & there


def test_service_has_exactly_the_rights_that_it_uses(manifests: list[Object]) -> None:
    calls = {needed(name, *call) for name, made in CALLS.items() for call in made}

    everywhere = granted(one(manifests, "ClusterRole", ENFORCER))
    here = granted(one(manifests, "Role", ENFORCER))

    assert bound_roles(manifests, ENFORCER) == {("ClusterRole", ENFORCER), ("Role", ENFORCER)}
    assert everywhere == {words for is_local, words in calls if not is_local}
    assert here == {words for is_local, words in calls if is_local}


def test_rights_are_for_the_groups_that_are_asked(manifests: list[Object]) -> None:
    rules = (
        one(manifests, "ClusterRole", ENFORCER)["rules"] + one(manifests, "Role", ENFORCER)["rules"]
    )

    for rule in rules:
        custom = rule["resources"][0].startswith("virtualmachine")
        assert rule["apiGroups"] == (["vm.neon.tech"] if custom else [""])


def test_policy_is_about_our_account_and_our_pods(manifests: list[Object]) -> None:
    policy = one(manifests, "ValidatingAdmissionPolicy", f"{ENFORCER}-own-pods")["spec"]
    (condition,), (validation,) = policy["matchConditions"], policy["validations"]
    account = one(manifests, "ServiceAccount", ENFORCER)["metadata"]

    who = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert condition["expression"] == f"request.userInfo.username == '{who}'"
    assert f"labels['{NAME_LABEL}'] == '{ENFORCER}'" in validation["expression"]


def test_scheduler_may_take_its_own_lease_only(manifests: list[Object]) -> None:
    election = scheduler_config()["leaderElection"]

    assert election["leaderElect"] is True
    assert election["resourceNamespace"] == NAMESPACE
    assert election["resourceName"] != "kube-scheduler"
    assert one(manifests, "Role", SCHEDULER)["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [election["resourceName"]],
            "verbs": ["get", "update"],
        }
    ]
    assert bound_roles(manifests, SCHEDULER) == {
        ("ClusterRole", "system:kube-scheduler"),
        ("ClusterRole", "system:volume-scheduler"),
        ("Role", "extension-apiserver-authentication-reader"),
        ("Role", SCHEDULER),
    }
