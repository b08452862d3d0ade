"""Requests that are nearly right, hardly HTTP, or nothing at all; all of them from one Random."""

from __future__ import annotations

import copy
import gzip
import json
import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRAFFIC = Path(__file__).parents[1] / "data" / "traffic"
DOORS = ("extender", "agent", "admin")

READS: tuple[str, ...] = (
    "/livez",
    "/readyz",
    "/healthz",
    "/metrics",
    "/api/v1/nodes",
    "/api/v1/nodes/node-00",
)
READS += ("/api/v1/pods/default/none-00000", "/api/v1/reconcile", "/", "/api/v1/nodes/%ff%00")
TOKEN = "of-the-admin-port"
NODE = "ip-10-0-0-15.eu-central-1.compute.internal"
ORDERS = [
    ("freeze", {"who": "fuzz", "why": "to see", "node": NODE, "dryRun": False}),
    ("thaw", {"who": "fuzz", "why": "to see", "node": NODE}),
    ("thaw", {"who": "fuzz", "why": "to see"}),
    ("release", {"who": "fuzz", "why": "to see", "pod": "default/none-00000", "dryRun": True}),
    ("reconcile", {"who": "fuzz", "why": "to see", "dryRun": True}),
]
CHANGES = ("freeze", "thaw", "release", "reconcile")
METHODS = ("GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "CONNECT", "PATCH", "TRACE", "get")
PARTS = ("/", "//", "api", "v1", "extender", "filter", "%", "%00", "%ff", "..", "?", "#", ";", "é")
HEADERS = (
    "Expect: 100-continue",
    "Expect: x",
    "Upgrade: h2c",
    "Upgrade: websocket\r\nConnection: upgrade",
    "Content-Encoding: gzip",
    "Content-Encoding: deflate",
    "Content-Encoding: x",
    "Transfer-Encoding: chunked",
    "Content-Length: 1",
    "Content-Length: -1",
    "Content-Length: 1e3",
    "Content-Length: 99999999999999999999",
    "Connection: close, keep-alive",
    "Authorization: Bearer x",
    "Authorization: Bearer \xff",
    "Cookie: " + "a=b; " * 50,
    "Host: [::",
    "Host: a\r\nHost: b",
    "X: \xff",
    ": x",
    "X",
    "Accept: text/html",
    "Content-Type: application/json; charset=\xff",
    "Content-Type: multipart/form-data; boundary=x",
    "Trailer: X",
    "X-Actor: \x01",
)

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 7, 2**31, 2**53, 2**63, 2**64, 10**400, 0.5, 1e308, -0.0),
    *("", " ", "-", "node-00", "node-01", "none-00000", "a b", "a/b", "\0", "\u2028", "\ud800"),
    *("\U0001f4a5", "1Gi", "250m", "1e999999", "-1", "9" * 300, "x" * 5000, "0x10", "1_000"),
    *("+1", "\u0661", "1.", ".5", "1E3", "1e-400", "9223372036854775807", "1Ei", "-0", "Ki"),
    *([], {}, [[]], {"": {}}, [None], ["node-00"] * 2, {"vCPUs": "1", "mem": 1}),
    *({"name": "node-00"}, float("inf"), float("nan")),
)

NEW_PODS = 2000
"""Names and UIDs of pods that nobody has bound yet; some calls are about the same one."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request."""

    door: str
    content: bytes
    is_whole: bool
    """It has a head and a body that HTTP can tell the end of: an answer must come."""


class Requests:
    """As many as one wants. The same seed gives the same ones in the same order."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._recorded = list(recorded())
        self._vms = bound_vms()

    def __iter__(self) -> Iterator[Sent]:
        while True:
            yield self.one()

    def one(self) -> Sent:
        kind = self._random.random()
        if kind < 0.80:
            return self._nearly_right()
        if kind < 0.88:
            return self._admin()
        return self._hardly_http() if kind < 0.96 else self._nothing()

    # Schema-aware

    def _nearly_right(self) -> Sent:
        pick = self._random
        door, path, document = pick.choice(self._recorded)
        document = copy.deepcopy(document)
        if pick.random() < 0.5:
            self._renamed(document)
        for _ in range(pick.choice((0, 1, 1, 2, 3, 8))):
            self._mutate(document)
        body = json.dumps(document, ensure_ascii=pick.random() < 0.5).encode(errors="surrogatepass")
        if pick.random() < 0.15:
            body = self._bent(body)
        return Sent(door, self._framed("POST", path, body), is_whole=True)

    def _mutate(self, document: Any) -> None:
        pick, found = self._random, list(places(document))
        if not found:
            return
        place, key = pick.choice(found)
        how = pick.choice(("value", "value", "drop", "case", "wrap", "more", "deep", "swap"))
        if how == "drop":
            del place[key]
        elif how == "case" and isinstance(key, str):
            place[key.swapcase()] = place.pop(key)
        elif how == "more" and isinstance(place, dict):
            place[self._text(8)] = copy.deepcopy(pick.choice(ODD))
        else:
            place[key] = self._value(how, place[key], found)

    def _value(self, how: str, old: Any, found: list[tuple[Any, Any]]) -> Any:
        pick = self._random
        if how == "wrap":
            return [old]
        if how == "deep":
            return self._nested(pick.choice((10, 200)))
        if how == "swap":
            place, key = pick.choice(found)
            return copy.deepcopy(place[key])
        return copy.deepcopy(pick.choice(ODD))

    def _renamed(self, document: Any) -> None:
        """About another pod, of which nobody knows whether it was asked about before."""
        name = f"new-{self._random.randrange(NEW_PODS)}"
        pod = document.get("Pod")
        if isinstance(pod, dict) and isinstance(pod.get("metadata"), dict):
            pod["metadata"] |= {"name": name, "uid": name}
        if "protoVersion" in document:
            document["pod"] = {"namespace": "default", "name": self._random.choice(self._vms)}
        if "PodUID" in document:
            document |= {"PodName": name, "PodUID": name}

    def _nested(self, depth: int) -> Any:
        value: Any = copy.deepcopy(self._random.choice(ODD))
        for _ in range(depth):
            value = [value] if self._random.random() < 0.5 else {"a": value}
        return value

    def _text(self, longest: int) -> str:
        letters = string.printable + "é\u2028\U0001f4a5"
        return "".join(self._random.choices(letters, k=self._random.randint(0, longest)))

    def _framed(self, method: str, path: str, body: bytes) -> bytes:
        pick = self._random
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n".encode()
        if path.startswith("/api/") and pick.random() < 0.8:
            head += f"Authorization: Bearer {TOKEN}\r\n".encode()
        kind = pick.random()
        if kind < 0.05:
            body = gzip.compress(body, 1, mtime=0)
            head += b"Content-Encoding: gzip\r\n"
        if kind > 0.9:
            at = pick.randint(0, len(body))
            chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:at], body[at:]) if p)
            return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    # Raw

    def _bent(self, content: bytes) -> bytes:
        """Some bytes are others, gone, twice, or more."""
        pick, bent = self._random, bytearray(content)
        for _ in range(pick.randint(1, 4)):
            at = pick.randint(0, len(bent))
            match pick.randint(0, 3):
                case 0:
                    bent[at : at + 1] = pick.randbytes(1)
                case 1:
                    del bent[at : at + pick.randint(1, 20)]
                case 2:
                    bent[at:at] = pick.randbytes(pick.randint(1, 8))
                case 3:
                    bent[at:at] = bent[at : at + pick.randint(1, 50)]
        return bytes(bent)

    def _admin(self) -> Sent:
        pick = self._random
        if pick.random() < 0.6:
            return Sent("admin", self._framed("GET", pick.choice(READS), b""), is_whole=True)
        body = json.dumps({"reason": pick.choice(ODD), "dryRun": pick.choice(ODD)}).encode()
        path = f"/api/v1/{pick.choice(CHANGES)}"
        return Sent("admin", self._framed("POST", path, self._bent(body)), is_whole=True)

    def _hardly_http(self) -> Sent:
        pick = self._random
        path = "/" + "".join(pick.choices(PARTS, k=pick.randint(0, 6)))
        lines = [f"{pick.choice(METHODS)} {path} HTTP/1.{pick.choice('0112')}", "Host: x"]
        lines += pick.choices(HEADERS, k=pick.randint(0, 4))
        pick.shuffle(lines[1:])
        content = "\r\n".join(lines).encode("latin-1", errors="replace") + b"\r\n\r\n"
        if pick.random() < 0.5:
            content += pick.choice((b"{}", b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"\xff" * 20))
        if pick.random() < 0.3:
            content = self._bent(content)
        return Sent(pick.choice(DOORS), content, is_whole=False)

    def _nothing(self) -> Sent:
        pick = self._random
        content = pick.randbytes(pick.randint(0, 300))
        if pick.random() < 0.5:
            door, path, document = pick.choice(self._recorded)
            content = self._bent(self._framed("POST", path, json.dumps(document).encode()))
            content = content[: pick.randint(0, len(content))]
            return Sent(door, content, is_whole=False)
        return Sent(pick.choice(DOORS), content, is_whole=False)


def recorded() -> Iterator[tuple[str, str, Any]]:
    """Door, path and body of what kube-scheduler and agents really sent."""
    for said in (*_lines("names"), *_lines("nodes")[:20]):
        asked = said["request"]
        yield "extender", f"/extender/{said['verb']}", asked
        if said["verb"] == "filter" and asked.get("NodeNames"):
            held = {"Pod": asked["Pod"], "NodeName": asked["NodeNames"][0]}
            yield from (
                ("extender", f"/extender/{verb}", held) for verb in ("reserve", "unreserve")
            )
    for _ in range(20):  # about as many as there are of the others
        yield from (("agent", "/", said["request"]) for said in _lines("agent"))
        yield from (("admin", f"/api/v1/{verb}", order) for verb, order in ORDERS)


def bound_vms() -> list[str]:
    """Names of the pods of VMs in the recorded cluster, all of them in the namespace `default`."""
    cluster = json.loads((TRAFFIC / "cluster.json").read_text())
    pods = [each for each in cluster["items"] if each["kind"] == "Pod"]
    return [
        pod["metadata"]["name"]
        for pod in pods
        if "vm.neon.tech/name" in pod["metadata"].get("labels", {}) and pod["spec"].get("nodeName")
    ]


def _lines(name: str) -> list[Any]:
    return [json.loads(line) for line in (TRAFFIC / f"{name}.jsonl").read_text().splitlines()]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in a document."""
    if not isinstance(value, dict | list):
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        yield from places(inner)
