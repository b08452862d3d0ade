"""Agents: requests that change something, and what they are answered."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from bench.cluster import vm_pod_name
from bench.figures import WrongAnswer
from bench.load import Load, request

CPU_STEP, MEM_STEP_GIB = 250, 1
UNITS = (2, 3)
"""Compute units that a VM asks for by turns: each request changes its row."""


def asked(number: int, units: int, last: int | None) -> dict[str, Any]:
    """The body that an agent of protocol v5.0 sends for a VM."""
    return {
        "protoVersion": 7,
        "pod": {"namespace": "default", "name": vm_pod_name(number)},
        "computeUnit": {"vCPUs": "250m", "mem": "1Gi"},
        "resources": _amounts(units),
        "lastPermit": None if last is None else _amounts(last),
        "metrics": {"loadAvg1M": 1.4},
    }


def _amounts(units: int) -> dict[str, str]:
    return {"vCPUs": f"{units * CPU_STEP}m", "mem": f"{units * MEM_STEP_GIB}Gi"}


def requests_of(url: str, vms: range) -> Iterator[bytes]:
    """Those of so many VMs by turns, without end; each asks for more, then for less, and so on."""
    low, high = UNITS
    rounds = [
        [request(url, _json(asked(each, high, low))) for each in vms],
        [request(url, _json(asked(each, low, high))) for each in vms],
    ]
    return itertools.cycle(itertools.chain(*rounds))


def split(vms: int, parts: int) -> list[range]:
    """Which VMs each connection speaks for: none is asked about twice at once."""
    return [range(at * vms // parts, (at + 1) * vms // parts) for at in range(parts)]


def judge(load: Load) -> None:
    """Raise WrongAnswer where an answer is no permit, or a sample none of all that was asked."""
    if load.refused:
        raise WrongAnswer(f"{load.refused} of {len(load.waits)} agents' requests were refused")
    judge_permits(load)


def judge_permits(load: Load) -> None:
    """Raise WrongAnswer where a sample's permit is not what was asked: there was room for it."""
    for sent, got in load.samples:
        if got[9:12] != b"200":
            continue
        wanted = json.loads(sent.partition(b"\r\n\r\n")[2])["resources"]
        told = json.loads(got.partition(b"\r\n\r\n")[2])["permit"]
        if (_milli(told["vCPUs"]), _gib(told["mem"])) != (
            _milli(wanted["vCPUs"]),
            _gib(wanted["mem"]),
        ):
            raise WrongAnswer(f"asked for {wanted}, told {told}, and there was room")


def _milli(value: object) -> int:
    text = str(value)
    return int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)


def _gib(value: object) -> float:
    text = str(value)
    return float(text[:-2]) if text.endswith("Gi") else float(text) / (1 << 30)


def _json(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
