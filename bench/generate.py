"""Writes a cluster of any size to a file, as `kubectl get nodes,pods,virtualmachines -A -o json`.

    python -m bench.generate --nodes 5000 --pods 150000 --vms 10000 -o cluster.json

The file is what `--cluster file:PATH` and `dev --cluster PATH` take. The same arguments write the
same bytes. Objects are written one by one: 150,000 pods take no more memory than one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.cluster import Size, objects

_FLUSH_BYTES = 1 << 20


def write_cluster(path: Path, size: Size) -> int:
    """Write it; how many bytes that were."""
    with path.open("wb") as file:
        for chunk in _chunks(size):
            file.write(chunk)
        return file.tell()


def _chunks(size: Size) -> Iterator[bytes]:
    encoder, between = msgspec.json.Encoder(), b"\n"
    buffer = bytearray(
        b'{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":['
    )
    for each in objects(size):
        buffer += between
        buffer += encoder.encode(each)
        between = b",\n"
        if len(buffer) > _FLUSH_BYTES:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer) + b"\n]}\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="bench.generate", description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True, help="all pods, those of VMs too")
    parser.add_argument("--vms", type=int, default=0, help="how many of the pods run VMs")
    parser.add_argument("--seed", type=int, default=1, help="another one, another cluster")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    try:
        size = Size(nodes=given.nodes, pods=given.pods, vms=given.vms, seed=given.seed)
        length = write_cluster(given.output, size)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    sys.stderr.write(f"{given.output}: {length} bytes\n")


if __name__ == "__main__":
    main()
