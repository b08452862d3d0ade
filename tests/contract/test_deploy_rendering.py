"""What kustomize makes of the manifests, and what deploy/README.md says of them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from autoscale_enforcer.cli.options import SERVE_FLAGS
from autoscale_enforcer.cluster.kubernetes import config_map
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
)

README = (DEPLOY / "README.md").read_text()


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
    (shown,) = re.findall(r"(?s)```yaml\n(.*?)```", README)
    (folder / "kustomization.yaml").write_text(shown)
    (folder / config_map.KEYS[0]).write_text("other")

    rendered = without_hashes(render(folder))

    template = pod_templates(rendered)[ENFORCER]
    found = environment(rendered, template)
    (mount,) = container(template)["volumeMounts"]
    assert container(template)["image"] != "autoscale-enforcer:dev"
    assert one(rendered, "ConfigMap", config_map.NAME)["data"] == {config_map.KEYS[0]: "other"}
    assert found["AE_REDIS_URL"].startswith("rediss://")
    assert found["AE_REDIS_PASSWORD_FILE"].startswith(mount["mountPath"] + "/")


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
