"""What kustomize makes of the manifests, and what deploy/README.md says of them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from autoscale_enforcer.cli.options import SERVE_FLAGS
from autoscale_enforcer.cluster.kubernetes import config_map
from autoscale_enforcer.cluster.kubernetes.paths import REVIEWS
from tests.support.containers import DOORS
from tests.support.manifests import (
    DEPLOY,
    ENFORCER,
    OVERLAYS,
    Object,
    container,
    environment,
    one,
    pod_templates,
    read,
    render,
    scheduler_config,
)

README = (DEPLOY / "README.md").read_text()
BLOCKS = re.findall(r"(?s)```yaml\n(.*?)```", README)
"""An overlay, what turns TLS on in one, kube-scheduler's part of that, the right to review."""


def without_hashes(manifests: list[Object]) -> list[Object]:
    """ConfigMaps, and pods that refer to them, under the names that the files have.

    Nothing else is renamed: a hash that gets anywhere else is a mistake.
    """

    def plain(reference: Object) -> None:
        reference["name"] = re.sub(r"-[a-z0-9]{10}$", "", reference["name"])

    for each in manifests:
        if each["kind"] == "ConfigMap":
            plain(each["metadata"])
    for template in pod_templates(manifests).values():
        for volume in template["spec"].get("volumes", []):
            plain(volume.get("configMap", {"name": ""}))
        for source in container(template).get("envFrom", []):
            plain(source["configMapRef"])
    return manifests


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_renders_what_is_read_here(overlay: str) -> None:
    rendered = without_hashes(render(overlay))

    def by_name(each: Object) -> tuple[str, str]:
        return each["kind"], each["metadata"]["name"]

    assert sorted(rendered, key=by_name) == sorted(read(overlay), key=by_name)


def test_service_restarts_for_another_redis_and_not_for_another_config() -> None:
    generators = [
        generator
        for folder in ("base", "overlays/single-redis", "overlays/sentinel")
        for generator in yaml.safe_load((DEPLOY / folder / "kustomization.yaml").read_text())[
            "configMapGenerator"
        ]
    ]

    fixed = {
        each["name"]
        for each in generators
        if each.get("options", {}).get("disableNameSuffixHash", False)
    }

    assert fixed == {config_map.NAME}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_overlay_in_the_readme_does_what_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "deploy" / "overlays" / "own"
    shutil.copytree(DEPLOY / "base", tmp_path / "deploy" / "base")
    folder.mkdir(parents=True)
    shown = BLOCKS[0]
    (folder / "kustomization.yaml").write_text(shown)
    (folder / config_map.KEYS[0]).write_text("other")

    rendered = without_hashes(render(folder))

    template = pod_templates(rendered)[ENFORCER]
    found = environment(rendered, template)
    _, mount = container(template)["volumeMounts"]
    assert container(template)["image"] != "autoscale-enforcer:dev"
    assert one(rendered, "ConfigMap", config_map.NAME)["data"] == {config_map.KEYS[0]: "other"}
    assert found["AE_REDIS_URL"].startswith("rediss://")
    assert found["AE_REDIS_PASSWORD_FILE"].startswith(mount["mountPath"] + "/")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_tls_in_the_readme_does_what_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "deploy" / "overlays" / "own"
    shutil.copytree(DEPLOY, tmp_path / "deploy", dirs_exist_ok=True)
    folder.mkdir(parents=True)
    (folder / "kustomization.yaml").write_text("resources: [../single-redis]\n" + BLOCKS[1])

    rendered = without_hashes(render(folder))

    template = pod_templates(rendered)[ENFORCER]
    found = environment(rendered, template)
    _, mount = container(template)["volumeMounts"]
    files = [value for name, value in found.items() if name.endswith(("CERT_FILE", "KEY_FILE"))]
    assert len(files) == 2
    assert {Path(file).parent for file in files} == {Path(mount["mountPath"])}
    assert found["AE_REDIS_URL"]
    for probe in ("startup", "liveness", "readiness"):
        assert container(template)[f"{probe}Probe"]["httpGet"]["scheme"] == "HTTPS"


def test_tls_in_the_readme_is_what_kube_scheduler_needs() -> None:
    (shown,) = yaml.safe_load(BLOCKS[2])["extenders"]
    (shipped,) = scheduler_config()["extenders"]

    assert shown["urlPrefix"] == shipped["urlPrefix"].replace("http:", "https:")
    assert shown["enableHTTPS"] is True
    assert shown["tlsConfig"].keys() == {"caFile", "certFile", "keyFile"}


def test_the_right_to_review_tokens_is_that_and_no_other() -> None:
    role, binding = yaml.safe_load_all(BLOCKS[3])
    group, plural = REVIEWS.split("/")[2], REVIEWS.split("/")[4]

    assert role["rules"] == [{"apiGroups": [group], "resources": [plural], "verbs": ["create"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [ENFORCER]


def test_readme_names_what_is_there() -> None:
    variables = {f"AE_{flag.parameter.upper()}" for flag in SERVE_FLAGS}
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    folders = re.findall(r"`(overlays/[\w./-]+)`", README) + re.findall(r"deploy/(\S+)", README)

    assert set(re.findall(r"\bAE_[A-Z_]+\b", README)) <= variables
    assert all((DEPLOY / name).exists() for name in (*links, *folders))
    assert all(f"| {port} " in README for port in DOORS)
    assert {f"overlays/{name}" for name in OVERLAYS} <= set(folders)


def test_readme_lists_the_rights_of_the_service() -> None:
    rows = re.findall(r"(?m)^\| ((?:get|list|create|patch)[^|]*) \|", README)
    objects = read("single-redis")
    roles = [one(objects, kind, ENFORCER) for kind in ("ClusterRole", "Role")]
    resources = {name for role in roles for rule in role["rules"] for name in rule["resources"]}
    verbs = {verb for role in roles for rule in role["rules"] for verb in rule["verbs"]}
    said = " ".join(rows).replace("namespace ", "namespaces ").replace("ConfigMap ", "configmaps ")

    words = set(re.findall(r"[a-z/]+", said))
    assert resources <= words
    assert words & {"get", "list", "watch", "create", "patch", "update", "delete"} == verbs
