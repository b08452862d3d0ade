"""Generated clusters: what the service makes of them, and that they can be repeated."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from autoscale_enforcer.model.resources import NOTHING, Resources
from autoscale_enforcer.objects.listing import read_cluster
from bench.cluster import Size, objects, vm_pod_name
from bench.generate import main, write_cluster

SIZE = Size(nodes=7, pods=60, vms=12, seed=3)
KIB = 1 << 10


def test_file_holds_what_was_asked_for_and_the_service_reads_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"

    length = write_cluster(path, SIZE)

    listing = read_cluster(path.read_bytes())
    assert length == path.stat().st_size
    assert listing.bad == []
    assert (len(listing.nodes), len(listing.pods), len(listing.vms)) == (7, 60, 12)
    assert sum(pod.vm is not None and not pod.problem for pod in listing.pods) == 12


def test_uids_and_names_are_those_of_one_object_each(tmp_path: Path) -> None:
    made = list(objects(SIZE))

    uids = Counter(each["metadata"]["uid"] for each in made)
    names = Counter((each["kind"], each["metadata"]["name"]) for each in made)

    assert set(uids.values()) == {1}
    assert set(names.values()) == {1}


def test_no_node_is_over_its_capacity_and_autoscaled_vms_have_room_to_grow(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    write_cluster(path, Size(nodes=2, pods=400, vms=100))

    listing = read_cluster(path.read_bytes())

    most: dict[str, Resources] = defaultdict(lambda: NOTHING)
    for pod in listing.pods:
        most[pod.node or ""] += pod.vm.maximum if pod.vm else pod.requests
    for node in listing.nodes:
        assert most[node.name].at_most(node.allocatable) == most[node.name]
    assert most[""] != NOTHING  # so many do not fit, and are pending


def test_objects_are_of_the_size_of_real_ones() -> None:
    sizes: dict[str, list[int]] = defaultdict(list)
    for each in objects(SIZE):
        sizes[each["kind"]].append(len(msgspec.json.encode(each)))

    assert min(sizes["Pod"]) >= 5 * KIB
    assert max(sizes["Pod"]) < 8 * KIB
    assert min(sizes["Node"]) > 3 * KIB
    assert all(each["metadata"]["managedFields"] for each in objects(SIZE))


def test_same_arguments_write_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]

    for path, seed in zip(paths, (3, 3, 4), strict=True):
        main(_arguments(path, seed=seed))

    first, again, other = (path.read_bytes() for path in paths)
    assert first == again
    assert first != other


def test_vms_and_their_pods_name_each_other() -> None:
    made = list(objects(SIZE))
    pods = {each["metadata"]["name"]: each for each in made if each["kind"] == "Pod"}

    for number, vm in enumerate(each for each in made if each["kind"] == "VirtualMachine"):
        owner = pods[vm_pod_name(number)]["metadata"]["ownerReferences"][0]
        assert vm["status"]["podName"] == vm_pod_name(number)
        assert (owner["name"], owner["uid"]) == (vm["metadata"]["name"], vm["metadata"]["uid"])


def test_memory_does_not_grow_with_the_number_of_pods(tmp_path: Path) -> None:
    peaks = []
    for pods in (500, 3000):
        tracemalloc.start()
        write_cluster(tmp_path / "cluster.json", Size(nodes=50, pods=pods))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[1] < peaks[0] + 256 * KIB


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"nodes": 0}, "nodes must be at least 1"),
        ({"pods": -1}, "pods and vms at least 0"),
        ({"vms": 61}, "vms must not be more than pods"),
        ({"output": "/no/such/folder/x"}, "No such file"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_name(
    changed: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(_arguments(**({"output": tmp_path / "x"} | changed)))

    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_file_is_what_kubectl_would_print(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"

    write_cluster(path, Size(nodes=1, pods=0))

    found = json.loads(path.read_text())
    assert (found["apiVersion"], found["kind"]) == ("v1", "List")
    assert [each["kind"] for each in found["items"]] == ["Node"]


def _arguments(
    output: Path | str, *, nodes: int = 7, pods: int = 60, vms: int = 12, seed: int = 3
) -> list[str]:
    given = {"--nodes": nodes, "--pods": pods, "--vms": vms, "--seed": seed, "-o": output}
    return [str(word) for pair in given.items() for word in pair]
