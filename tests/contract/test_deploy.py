"""The manifests: what is there, pods, the service's process, and the two configs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
import yaml
from click.testing import CliRunner

from autoscale_enforcer.api import replica
from autoscale_enforcer.api.extender.app import VERBS
from autoscale_enforcer.cli.main import COMMANDS
from autoscale_enforcer.cli.options import SERVE_FLAGS, settings_from, settings_options
from autoscale_enforcer.cluster.kubernetes import config_map, own_pods
from autoscale_enforcer.config.scheduler_config import parse_scheduler_config
from autoscale_enforcer.config.settings import Settings
from tests.support.containers import DOORS
from tests.support.manifests import (
    DEPLOY,
    ENFORCER,
    NAME_LABEL,
    NAMESPACE,
    SCHEDULER,
    Object,
    container,
    environment,
    one,
    pod_templates,
    ports_by_name,
    scheduler_config,
    selected,
)

ADMIN = DEPLOY.parent / "service" / "autoscale_enforcer" / "api" / "admin.py"
REDIS_IMAGE = "redis:7.2.14"
CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


@pytest.fixture
def template(manifests: list[Object]) -> Object:
    return pod_templates(manifests)[ENFORCER]


def containers(manifests: list[Object]) -> Iterator[tuple[str, Object]]:
    for name, found in pod_templates(manifests).items():
        spec = found["spec"]
        yield from ((name, each) for each in spec.get("initContainers", []) + spec["containers"])


# What is there


def test_every_manifest_is_part_of_an_overlay() -> None:
    named: set[Path] = set()
    for file in DEPLOY.glob("*/**/kustomization.yaml"):
        kustomization = yaml.safe_load(file.read_text())
        names = list(kustomization["resources"])
        for generator in kustomization["configMapGenerator"]:
            names += generator.get("files", [])
        named |= {(file.parent / name).resolve() for name in names}

    there = {
        path
        for folder in ("base", "overlays")
        for path in (DEPLOY / folder).rglob("*")
        if path.is_file() and path.name != "kustomization.yaml"
    }

    assert there == {path for path in named if path.is_file()}


def test_objects_have_names_of_their_own_and_the_agents_namespace(manifests: list[Object]) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in manifests]

    assert len(set(names)) == len(names)
    for each in manifests:
        expected = None if each["kind"] in CLUSTER_WIDE else NAMESPACE
        assert each["metadata"].get("namespace") == expected, each["metadata"]["name"]
        assert each["metadata"]["labels"]["app.kubernetes.io/part-of"] == ENFORCER


def test_names_of_config_maps_are_theirs_alone(manifests: list[Object]) -> None:
    """kustomize put a ConfigMap's hash behind the lease's name in a Role, for both had one name."""
    maps = {each["metadata"]["name"] for each in manifests if each["kind"] == "ConfigMap"}
    roles = [each for each in manifests if each["kind"] in ("Role", "ClusterRole")]
    limited = {name for role in roles for r in role["rules"] for name in r.get("resourceNames", [])}

    assert maps & limited == {config_map.NAME}


def test_nobody_is_handed_a_secret_but_the_admin_token(
    manifests: list[Object], template: Object
) -> None:
    """Which may be made later: orders are refused while it is not there."""
    (token,) = template["spec"]["volumes"]
    (mount,) = container(template)["volumeMounts"]
    file = Path(environment(manifests, template)["AE_ADMIN_TOKEN_FILE"])

    assert token["secret"] == {"secretName": "autoscale-enforcer-admin", "optional": True}
    assert (mount["name"], Path(mount["mountPath"])) == (token["name"], file.parent)
    readme = (DEPLOY / "README.md").read_text()
    assert f"secret generic {token['secret']['secretName']} --from-file={file.name}\n" in readme
    others = json.dumps(manifests).replace(json.dumps(token), "").lower()
    assert "secret" not in others


# Pods


def test_selectors_pick_their_own_workload_and_no_other(manifests: list[Object]) -> None:
    for each in manifests:
        spec, name = each.get("spec", {}), each["metadata"]["labels"].get(NAME_LABEL)
        if each["kind"] == "Service":
            assert selected(manifests, spec["selector"]) == {name}
        elif each["kind"] == "NetworkPolicy":
            assert selected(manifests, spec["podSelector"]["matchLabels"]) == {name}
        elif "selector" in spec:
            assert selected(manifests, spec["selector"]["matchLabels"]) == {name}


def test_pods_are_selected_by_what_the_leader_looks_for(
    manifests: list[Object], template: Object
) -> None:
    label, _, value = environment(manifests, template)["AE_POD_SELECTOR"].partition("=")

    assert selected(manifests, {label: value}) == {ENFORCER}


def test_no_pod_is_born_with_the_label_that_agents_follow(manifests: list[Object]) -> None:
    labels = [found["metadata"]["labels"] for found in pod_templates(manifests).values()]

    assert len(labels) >= 3
    assert all(own_pods.AGENTS_LABEL not in each for each in labels)


def test_pods_are_restricted(manifests: list[Object]) -> None:
    """Kubernetes' Pod Security Standard of that name, and a root that nobody writes to."""
    for name, found in pod_templates(manifests).items():
        spec = found["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}, name
        volumes = {kind for volume in spec.get("volumes", []) for kind in volume.keys() - {"name"}}
        assert volumes <= {"configMap", "secret"}, name
    for name, each in containers(manifests):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert all("hostPort" not in port for port in each["ports"]), name


def test_pods_are_placed_by_the_default_scheduler_before_others(manifests: list[Object]) -> None:
    for name, found in pod_templates(manifests).items():
        assert found["spec"]["schedulerName"] == "default-scheduler", name
        assert found["spec"]["priorityClassName"] == "system-cluster-critical", name


def test_only_who_asks_the_api_server_has_a_token(manifests: list[Object]) -> None:
    for name, found in pod_templates(manifests).items():
        spec = found["spec"]
        if "serviceAccountName" in spec:
            assert one(manifests, "ServiceAccount", spec["serviceAccountName"])
        else:
            assert spec["automountServiceAccountToken"] is False, name


def test_replicas_are_spread_and_go_one_at_a_time(manifests: list[Object]) -> None:
    several = {
        each["metadata"]["name"]: each["spec"]
        for each in manifests
        if each.get("spec", {}).get("replicas", 1) > 1
    }

    assert several[ENFORCER]["replicas"] == 3
    for name, spec in several.items():
        rules = spec["template"]["spec"]["topologySpreadConstraints"]
        assert rules[0]["topologyKey"] == "kubernetes.io/hostname"
        assert all(rule["labelSelector"] == spec["selector"] for rule in rules)
        assert one(manifests, "PodDisruptionBudget", name)["spec"]["maxUnavailable"] == 1


def test_images_are_pinned(manifests: list[Object]) -> None:
    images = {each["image"] for _, each in containers(manifests)}

    assert images == {
        "autoscale-enforcer:dev",
        "registry.k8s.io/kube-scheduler:v1.36.2",
        REDIS_IMAGE,
    }


def test_scheduler_is_of_the_release_that_the_tests_run() -> None:
    pinned = (DEPLOY.parent / "tests" / "e2e" / "binaries" / "go.mod").read_text()
    text = (DEPLOY / "base" / "scheduler.yaml").read_text()
    (release,) = re.findall(r"kube-scheduler:(v[\d.]+)", text)

    assert re.findall(r"\sk8s\.io/kubernetes (v[\d.]+)", pinned) == [release]


# The service's process


def test_environment_makes_settings(
    manifests: list[Object], template: Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = environment(manifests, template)
    assert container(template)["args"] == ["serve"]
    options = COMMANDS["serve"].load().params
    own = {f"AE_{(option.name or '').upper()}" for option in options}
    handed_on = {each for option in options for each in _variables(option)}

    settings = parsed(found)

    assert found.keys() - own - handed_on == set()
    assert settings.replica.cluster == "kubernetes"
    assert settings.replica.name == "some-pod"
    assert settings.redis.url == found["AE_REDIS_URL"]


def _variables(option: click.Parameter) -> list[str]:
    given = option.envvar
    return [given] if isinstance(given, str) else list(given or ())


def parsed(variables: dict[str, str]) -> Settings:
    """The settings of `serve` in this environment, as it would run on them."""
    found: list[Settings] = []

    @click.command(context_settings={"auto_envvar_prefix": "AE"})
    @settings_options(SERVE_FLAGS)
    def command(**given: Any) -> None:
        found.append(settings_from(given))

    nothing_else: dict[str, str | None] = {name: None for name in os.environ if "AE_" in name}
    CliRunner().invoke(command, env=nothing_else | variables, catch_exceptions=False)
    return found[0]


def test_ports_are_those_of_the_settings_everywhere(
    manifests: list[Object], template: Object
) -> None:
    inside = ports_by_name(template)
    service = one(manifests, "Service", ENFORCER)["spec"]["ports"]

    assert inside == dict(zip(("extender", "agents", "admin"), DOORS, strict=True))
    assert {port["targetPort"]: port["port"] for port in service} == inside


def test_services_lead_to_ports_that_are_there(manifests: list[Object]) -> None:
    for service in (each for each in manifests if each["kind"] == "Service"):
        (name,) = selected(manifests, service["spec"]["selector"])
        inside = ports_by_name(pod_templates(manifests)[name])
        for port in service["spec"]["ports"]:
            assert inside[port["targetPort"]] == port["port"]


def test_probes_ask_what_is_served(template: Object) -> None:
    served = ADMIN.read_text()
    probes = {
        kind: container(template)[f"{kind}Probe"]["httpGet"]
        for kind in ("startup", "liveness", "readiness")
    }

    assert {probe["port"] for probe in probes.values()} == {"admin"}
    assert [probe["path"] for probe in probes.values()] == ["/livez", "/livez", "/readyz"]
    assert all(f'"{probe["path"]}"' in served for probe in probes.values())


def test_pods_have_time_for_calls_in_flight(template: Object) -> None:
    before = container(template)["lifecycle"]["preStop"]["sleep"]["seconds"]

    assert before + 2 * replica.DRAIN_SECONDS < template["spec"]["terminationGracePeriodSeconds"]


def test_readiness_waits_for_a_slow_redis(template: Object) -> None:
    waits = container(template)["readinessProbe"]["timeoutSeconds"]

    assert waits > Settings().redis.call_budget.total_seconds()


# Its config, and kube-scheduler's


def test_config_is_where_the_service_looks_and_can_be_used(manifests: list[Object]) -> None:
    data = one(manifests, "ConfigMap", config_map.NAME)["data"]

    config = parse_scheduler_config(data[config_map.KEYS[0]].encode())

    assert len(data) == 1
    assert config.unused_fields == ()
    assert config.scheduler_name == scheduler_config()["profiles"][0]["schedulerName"]


def test_scheduler_asks_the_service(manifests: list[Object]) -> None:
    (extender,) = scheduler_config()["extenders"]
    url = urlsplit(extender["urlPrefix"])
    service = one(manifests, "Service", ENFORCER)

    assert url.hostname == f"{ENFORCER}.{service['metadata']['namespace']}.svc"
    assert (url.scheme, url.port, url.path) == ("http", DOORS[0], "/extender")
    verbs = {value for key, value in extender.items() if key.endswith("Verb")}
    assert verbs == VERBS.keys() - {"reserve", "unreserve"}
    assert (extender["ignorable"], extender["nodeCacheCapable"]) == (False, True)
    assert extender["enableHTTPS"] is False
    assert "managedResources" not in extender


def test_scheduler_waits_for_more_than_two_of_our_budgets() -> None:
    (extender,) = scheduler_config()["extenders"]

    waits = float(extender["httpTimeout"].removesuffix("s"))

    assert waits > 2 * Settings().redis.call_budget.total_seconds()


def test_scheduler_offers_every_node_and_leaves_scoring_to_us() -> None:
    """With 100 nodes or more it would ask about a part, and refuse a pod that fits elsewhere."""
    config = scheduler_config()
    (profile,) = config["profiles"]

    off = {plugin["name"] for plugin in profile["plugins"]["score"]["disabled"]}

    assert config["percentageOfNodesToScore"] == 100
    assert off == {"NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality"}
    assert profile["plugins"].keys() == {"score"}


def test_scheduler_reads_the_config_that_is_mounted(manifests: list[Object]) -> None:
    spec = pod_templates(manifests)[SCHEDULER]["spec"]
    (volume,), (mount,) = spec["volumes"], spec["containers"][0]["volumeMounts"]
    (name,) = one(manifests, "ConfigMap", volume["configMap"]["name"])["data"]

    assert f"--config={mount['mountPath']}/{name}" in spec["containers"][0]["command"]
