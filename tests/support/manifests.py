"""The manifests in `deploy/`: as the files have them, and as `kubectl apply -k` renders them.

`read` needs nothing and leaves out the hash that kustomize puts behind the name of a ConfigMap;
`render` needs Go, once. A test holds one against the other.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

DEPLOY = Path(__file__).parents[2] / "deploy"
OVERLAYS = ("single-redis", "sentinel")

NAMESPACE = "kube-system"
ENFORCER, SCHEDULER = "autoscale-enforcer", "autoscale-enforcer-scheduler"
REDIS, SENTINEL = "autoscale-enforcer-redis", "autoscale-enforcer-sentinel"
"""Workloads, by the names that they share with their Services and labels."""

NAME_LABEL = "app.kubernetes.io/name"

_MODULE = Path(__file__).with_name("kustomize")
_PACKAGE = "sigs.k8s.io/kustomize/kustomize/v5"
_FIELDS = {"apiVersion", "kind", "resources", "generatorOptions", "configMapGenerator"}
_GENERATOR_FIELDS = {"name", "namespace", "files", "literals", "options"}


class CannotRenderError(Exception):
    """kustomize could not be built or refused the manifests; never a reason to skip."""


def read(overlay: str) -> list[Object]:
    """Every object of an overlay, base included.

    Raises ValueError where a kustomization does more than list files and make ConfigMaps.
    """
    return list(_read(DEPLOY / "overlays" / overlay))


def render(overlay: str | Path) -> list[Object]:
    """The same by kustomize itself: what `kubectl apply -k` would send.

    Also of a folder elsewhere. Raises CannotRenderError.
    """
    folder = DEPLOY / "overlays" / overlay
    text = _run([str(_kustomize()), "build", str(folder)], folder)
    return [found for found in yaml.safe_load_all(text) if found]


def one(objects: list[Object], kind: str, name: str) -> Object:
    """The only object of that kind and name."""
    (found,) = [
        each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


def pod_templates(objects: list[Object]) -> dict[str, Object]:
    """What makes pods, by name: metadata and spec of each pod."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]
        for each in objects
        if "template" in each.get("spec", {})
    }


def container(template: Object) -> Object:
    (found,) = template["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def environment(manifests: list[Object], template: Object) -> dict[str, str]:
    """What the process finds, with a name for what is filled in later."""
    found: dict[str, str] = {}
    for source in container(template).get("envFrom", []):
        found |= one(manifests, "ConfigMap", source["configMapRef"]["name"])["data"]
    for entry in container(template)["env"]:
        filled_in = {"metadata.name": "some-pod", "metadata.namespace": NAMESPACE}
        reference = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        found[entry["name"]] = entry["value"] if reference is None else filled_in[reference]
    return found


def selected(manifests: list[Object], labels: dict[str, str]) -> set[str]:
    """Which of our workloads have all of these labels."""
    return {
        name
        for name, found in pod_templates(manifests).items()
        if labels.items() <= found["metadata"]["labels"].items()
    }


def ports_by_name(template: Object) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(template)["ports"]}


def scheduler_config() -> Object:
    found = yaml.safe_load((DEPLOY / "base" / "scheduler-config.yaml").read_text())
    assert isinstance(found, dict)
    return found


def _read(folder: Path) -> Iterator[Object]:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := kustomization.keys() - _FIELDS:
        raise ValueError(f"{folder}: {unknown} is more than is read here")
    for name in kustomization["resources"]:
        if (folder / name).is_dir():
            yield from _read((folder / name).resolve())
        else:
            yield from yaml.safe_load_all((folder / name).read_text())
    labels = kustomization.get("generatorOptions", {}).get("labels", {})
    for generator in kustomization.get("configMapGenerator", []):
        yield _config_map(folder, generator, labels)


def _config_map(folder: Path, generator: Object, labels: dict[str, str]) -> Object:
    if unknown := generator.keys() - _GENERATOR_FIELDS:
        raise ValueError(f"{folder}: {unknown} is more than is read here")
    files = {name: (folder / name).read_text() for name in generator.get("files", [])}
    literals = dict(text.split("=", 1) for text in generator.get("literals", []))
    metadata = {"name": generator["name"], "namespace": generator["namespace"], "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files | literals}


def _kustomize() -> Path:
    """Built once, and kept outside the checkout under everything that would change it."""
    if shutil.which("go") is None:
        raise CannotRenderError("Go is missing: kustomize is built from tests/support/kustomize")
    version = _run(["go", "env", "GOVERSION", "GOOS", "GOARCH"], _MODULE)
    pins = "".join((_MODULE / name).read_text() for name in ("go.mod", "go.sum"))
    key = hashlib.sha256((version + pins).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = cache / "autoscale-enforcer" / "kustomize" / key / "kustomize"
    if not program.exists():
        _build(program)
    return program


def _build(program: Path) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent, prefix="building-") as folder:
        made = Path(folder) / program.name
        go = ["nice", "-n", "19", "go", "build", "-trimpath", "-ldflags", "-s -w"]
        _run([*go, "-o", str(made), _PACKAGE], _MODULE)
        made.replace(program)  # a program that is there is whole, whoever built it beside us


def _run(command: list[str], folder: Path) -> str:
    environ = os.environ | {"CGO_ENABLED": "0"}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CannotRenderError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout
