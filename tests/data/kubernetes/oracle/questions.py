"""The questions put to main.go, the same each time: `python questions.py quantities|pods`."""

import json
import random
import sys
from typing import Any

R = random.Random(36)

CPU = [
    "0",
    "1",
    "2",
    "100m",
    "250m",
    "0.5",
    ".25",
    "1.5",
    "1500m",
    "100u",
    "333333n",
    "1e-1",
    2,
    0.3,
]
MEM = [
    *("0", "1Gi", "512Mi", "129e6", "128974848000m", "1.5Gi", "0.1Gi", "123Mi", "1M", "1E3"),
    *("300100m", 4096),
]
DIGITS = ["", "0", "1", "7", "12", "999", "1024", "123456789", "10737418240", "00012"]
PARTS = ["", "", "", ".", ".0", ".5", ".25", ".001", ".0000000001", ".999999999999"]
SUFFIXES = [
    *("", "", "n", "u", "m", "k", "M", "G", "T", "P", "E"),
    "Ki",
    "Mi",
    "Gi",
    "Ti",
    "Pi",
    "Ei",
]
ODD = [
    *("e", "e3", "E3", "e+2", "e-3", "E-12", "K", "mi", "ki", "i", "B"),
    "e1.5",
    "e 1",
    "mm",
    "µ",
]


def some_resources(chance: float = 0.7) -> dict[str, Any]:
    named = {"cpu": CPU, "memory": MEM, "ephemeral-storage": MEM}
    return {name: R.choice(amounts) for name, amounts in named.items() if R.random() < chance}


def container(name: str) -> dict[str, Any]:
    requests = {"requests": some_resources()} if R.random() < 0.9 else {}
    return {"name": name, "resources": requests}


def resize_status() -> dict[str, Any]:
    """Never an allocation alone: there we differ, on purpose."""
    answer: dict[str, Any] = {"resources": {}}
    if R.random() < 0.9:
        answer["resources"] = {"requests": some_resources(0.9)}
    if R.random() < 0.7:
        answer["allocatedResources"] = some_resources(0.9)
    return answer


def pod() -> dict[str, Any]:
    containers = [container(f"c{i}") for i in range(R.randint(1, 3))]
    inits = [container(f"i{i}") for i in range(R.choice([0, 0, 1, 2, 3]))]
    for each in inits:
        if R.random() < 0.5:
            each["restartPolicy"] = R.choice(["Always", "Always", "OnFailure"])
    spec: dict[str, Any] = {"containers": containers, "initContainers": inits}
    if R.random() < 0.3:
        spec["overhead"] = some_resources()
    if R.random() < 0.3:
        spec["resources"] = {"requests": some_resources(0.5)}
    return {"spec": spec, "status": status(containers, inits)}


def status(containers: list[dict[str, Any]], inits: list[dict[str, Any]]) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True", "reason": "Infeasible"}]
    answer: dict[str, Any] = {"conditions": conditions}
    if R.random() < 0.5:
        return answer
    for field, of in (("containerStatuses", containers), ("initContainerStatuses", inits)):
        answer[field] = [{"name": c["name"], **resize_status()} for c in of if R.random() < 0.7]
    if R.random() < 0.5:
        answer.update(resize_status())
    reasons = R.choice([[], ["Infeasible"], ["Deferred"], ["Deferred", "Infeasible"]])
    conditions += [{"type": "PodResizePending", "status": "True", "reason": r} for r in reasons]
    return answer


def quantity() -> str:
    sign = R.choice(["", "", "", "+", "-"])
    return sign + R.choice(DIGITS) + R.choice(PARTS) + R.choice(SUFFIXES + ODD)


def main() -> None:
    if sys.argv[1] == "quantities":
        for text in dict.fromkeys(quantity() for _ in range(900)):
            sys.stdout.write(json.dumps({"text": text}) + "\n")
    else:
        for _ in range(250):
            sys.stdout.write(json.dumps({"pod": pod()}) + "\n")


if __name__ == "__main__":
    main()
