"""Certificates for the API server and its clients."""

from __future__ import annotations

import ssl

import trustme

from autoscale_enforcer.cluster.kubernetes import paths
from autoscale_enforcer.cluster.kubernetes.access import Access
from autoscale_enforcer.cluster.kubernetes.answers import BareObject
from autoscale_enforcer.cluster.kubernetes.client import KubeApi

KUBE_SYSTEM = {"metadata": {"name": "kube-system", "uid": "cluster-1"}}


def server_context(authority: trustme.CA, *, asks_for_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if asks_for_certificate:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def cluster_uid(access: Access) -> str | None:
    """The UID of `kube-system`, asked for over this access."""
    async with KubeApi(access) as client:
        found = await client.get(paths.namespace_path("kube-system"), BareObject)
    return found.metadata.uid if found and found.metadata else None
