"""A small client of the API server: what tests do to a cluster, and what they look at.

It shares nothing with the client under test.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import aiohttp
import yaml

Object = dict[str, Any]
"""Some Kubernetes object, as its JSON."""

WATCH_LINE_BYTES = 4 * 1024 * 1024
NEONVM = Path(__file__).with_name("neonvm.yaml")
PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """Where the objects of a kind are found."""

    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        root = "/apis" if "/" in self.api_version else "/api"
        within = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        parts = [part for part in (self.plural, name, subresource) if part]
        return f"{root}/{self.api_version}{within}/{'/'.join(parts)}"


RBAC = "rbac.authorization.k8s.io/v1"
CONFIG_MAPS = Kind("v1", "configmaps")
EVENTS = Kind("v1", "events")
NAMESPACES = Kind("v1", "namespaces", namespaced=False)
NODES = Kind("v1", "nodes", namespaced=False)
PODS = Kind("v1", "pods")
SERVICE_ACCOUNTS = Kind("v1", "serviceaccounts")
PRIORITY_CLASSES = Kind("scheduling.k8s.io/v1", "priorityclasses", namespaced=False)
RUNTIME_CLASSES = Kind("node.k8s.io/v1", "runtimeclasses", namespaced=False)
CLUSTER_ROLES = Kind(RBAC, "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDINGS = Kind(RBAC, "clusterrolebindings", namespaced=False)
CRDS = Kind("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
VMS = Kind("vm.neon.tech/v1", "virtualmachines")
MIGRATIONS = Kind("vm.neon.tech/v1", "virtualmachinemigrations")


class ApiError(Exception):
    """The API server refused."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind, at one version from which a watch may go on."""

    items: list[Object]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object


class Api:
    """One user's connection to the API server; use it as a context manager.

    A method that takes a namespace means `default` when none is given. What the server refuses
    raises ApiError; what never reached it, aiohttp.ClientError.
    """

    def __init__(self, url: str, *, token: str, ca_file: Path) -> None:
        self._url = url
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None
        self._sockets: list[socket.socket] = []

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            self._url,
            connector=aiohttp.TCPConnector(
                ssl=self._tls, limit=0, socket_factory=self._make_socket
            ),
            headers=self._headers,
            read_bufsize=WATCH_LINE_BYTES,
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
        # The session forgets connections whose request was given up; their TLS is still to end.
        await until(self._has_no_open_socket, "all connections closed", within=45)

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """Any call that has no method of its own; gives the decoded answer."""
        sent = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type}
        call = self._open().request(method, path, data=sent, params=params, headers=headers)
        async with call as answer:
            return _checked(answer.status, await answer.read())

    async def create(
        self,
        kind: Kind,
        body: Object,
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> Object:
        """Create an object, or post to a subresource of `name`: `binding`, `eviction`, `token`."""
        within = namespace or body.get("metadata", {}).get("namespace") or "default"
        path = kind.path(namespace=within, name=name, subresource=subresource)
        created: Object = await self.request("POST", path, body)
        return created

    async def get(self, kind: Kind, name: str, *, namespace: str = "default") -> Object:
        """The object; ApiError with status 404 if there is none."""
        found: Object = await self.request("GET", kind.path(namespace=namespace, name=name))
        return found

    async def find(self, kind: Kind, name: str, *, namespace: str = "default") -> Object | None:
        """The object, or None."""
        try:
            return await self.get(kind, name, namespace=namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def listing(
        self, kind: Kind, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Listing:
        """All objects of a kind, in all namespaces unless one is named."""
        params = {"labelSelector": labels, "fieldSelector": fields}
        found = await self.request("GET", kind.path(namespace=namespace), params=params)
        return Listing(found["items"], found["metadata"]["resourceVersion"])

    async def items(
        self, kind: Kind, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> list[Object]:
        """The objects of `listing` alone."""
        found = await self.listing(kind, namespace=namespace, labels=labels, fields=fields)
        return found.items

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: object,
        *,
        namespace: str = "default",
        subresource: str = "",
        strategy: Literal["merge", "strategic", "json"] = "merge",
    ) -> Object:
        """Change fields; custom resources know no strategic merge."""
        path = kind.path(namespace=namespace, name=name, subresource=subresource)
        changed: Object = await self.request("PATCH", path, patch, content_type=PATCHES[strategy])
        return changed

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "default",
        grace_seconds: int | None = None,
        uid: str | None = None,
    ) -> None:
        """Ask for its end; a bound pod's comes from a kubelet, or at once with 0 s of grace."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        await self.request("DELETE", kind.path(namespace=namespace, name=name), options)

    async def apply(self, manifest: Object, *, is_dry_run: bool = False) -> Object:
        """What `kubectl apply --server-side` does, with `--dry-run=server` too."""
        kind = await self._kind_of(manifest)
        metadata = manifest["metadata"]
        path = kind.path(
            namespace=metadata.get("namespace") or "default", name=str(metadata["name"])
        )
        params = {"fieldManager": "e2e", "force": "true", "fieldValidation": "Strict"}
        if is_dry_run:
            params["dryRun"] = "All"
        applied: Object = await self.request(
            "PATCH", path, manifest, params=params, content_type=PATCHES["apply"]
        )
        return applied

    @asynccontextmanager
    async def watch(
        self, kind: Kind, *, since: str, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """What happens after a version, until the server or the `async with` block ends it."""
        params = {
            "watch": "true",
            "resourceVersion": since,
            "labelSelector": labels,
            "fieldSelector": fields,
        }
        timeout = aiohttp.ClientTimeout(total=None)
        path = kind.path(namespace=namespace)
        async with self._open().get(path, params=params, timeout=timeout) as answer:
            if answer.status != 200:
                _checked(answer.status, await answer.read())
            yield _events(answer)

    async def service_account(self, name: str, *, namespace: str = "default") -> str:
        """A token of that service account, which is made if it is not there; it has no rights."""
        if await self.find(SERVICE_ACCOUNTS, name, namespace=namespace) is None:
            body = {"metadata": {"name": name}}
            await self.create(SERVICE_ACCOUNTS, body, namespace=namespace)
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        given = await self.create(
            SERVICE_ACCOUNTS, asked, namespace=namespace, name=name, subresource="token"
        )
        return str(given["status"]["token"])

    async def install_neonvm(self) -> None:
        """NeonVM's kinds; returns when objects of them can be made. Safe to repeat."""
        for manifest in yaml.safe_load_all(NEONVM.read_text()):
            await self.apply(manifest)
        for kind in (VMS, MIGRATIONS):
            await until(partial(self._is_served, kind), f"{kind.plural} served")

    async def empty(self) -> None:
        """Remove nodes, VMs, migrations, and pods at once, whoever made them, and wait for it."""
        kinds = [PODS, NODES]
        kinds += [kind for kind in (VMS, MIGRATIONS) if await self._is_served(kind)]
        namespaces = [entry["metadata"]["name"] for entry in await self.items(NAMESPACES)]
        for kind in kinds:
            for namespace in namespaces if kind.namespaced else [""]:
                await self.request(
                    "DELETE", kind.path(namespace=namespace), {"gracePeriodSeconds": 0}
                )
            await until(partial(self._has_none, kind), f"no {kind.plural}")

    def _make_socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        self._sockets = [each for each in self._sockets if each.fileno() >= 0]
        self._sockets.append(socket.socket(*address[:3]))
        return self._sockets[-1]

    async def _has_no_open_socket(self) -> bool:
        return all(each.fileno() < 0 for each in self._sockets)

    async def _has_none(self, kind: Kind) -> bool:
        return not await self.items(kind)

    async def _is_served(self, kind: Kind) -> bool:
        try:
            await self.items(kind)
        except ApiError as error:
            if error.status in {404, 429}:  # 429: its storage is being made ready
                return False
            raise
        return True

    async def _kind_of(self, manifest: Object) -> Kind:
        api_version = str(manifest["apiVersion"])
        root = "/apis" if "/" in api_version else "/api"
        served = await self.request("GET", f"{root}/{api_version}")
        for entry in served["resources"]:
            if entry["kind"] == manifest["kind"] and "/" not in entry["name"]:
                return Kind(api_version, entry["name"], namespaced=entry["namespaced"])
        raise ApiError(404, "NotFound", f"{api_version} has no kind {manifest['kind']}")

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise ValueError("use Api as a context manager")
        return self._session


async def until(
    condition: Callable[[], Awaitable[object]], what: str, *, within: float = 30
) -> Any:
    """Ask again and again until the answer is something; gives it. `what` is for the failure."""
    try:
        async with asyncio.timeout(within):
            while not (answer := await condition()):  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.05)
            return answer
    except TimeoutError:
        raise TimeoutError(f"after {within} s still not: {what}") from None


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[WatchEvent]:
    async for line in answer.content:
        event = json.loads(line)
        if event["type"] == "ERROR":
            raise _error(event["object"])
        yield WatchEvent(event["type"], event["object"])


def _checked(status: int, body: bytes) -> Any:
    answer = json.loads(body) if body[:1] in {b"{", b"["} else body.decode(errors="replace")
    if status < 400:
        return answer
    raise _error(answer if isinstance(answer, dict) else {"code": status, "message": answer})


def _error(status: Object) -> ApiError:
    return ApiError(status.get("code", 0), status.get("reason", ""), status.get("message", ""))
