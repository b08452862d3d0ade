"""Kubeconfig files, with contexts, client certificates, tokens and exec plugins.

The one place that loads kubernetes_asyncio: when the first such file is read, and in a thread, for
that may take seconds.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from autoscale_enforcer.cluster.kubernetes.access import Access
from autoscale_enforcer.errors import ClusterUnavailable, ConfigError
from autoscale_enforcer.watched_files import Watched

_ITS_ERRORS = (
    # It asserts and indexes its way through the file.
    AssertionError,
    AttributeError,
    KeyError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    yaml.YAMLError,
)


class KubeconfigCredentials:
    """The user of a context; after a 401 the file is read, and its plugin run, once more."""

    def __init__(self, paths: str, context: str, value: str) -> None:
        self._paths, self._context, self._value = paths, context, value
        self._renewing = asyncio.Lock()

    async def authorization(self) -> str:
        """As the file or its plugin last said."""
        return self._value

    async def renew(self, refused: str) -> bool:
        """Ask file and plugin again, once for all requests that were refused together."""
        async with self._renewing:
            if self._value == refused:
                try:
                    self._value = _authorization(await _load(self._paths, self._context))
                except ConfigError as error:
                    raise ClusterUnavailable(f"no new credentials: {error}") from error
        return self._value != refused


async def read_kubeconfig(paths: str, *, context: str = "") -> Access:
    """Access by a context of a file, or of several separated by colons; by default the current one.

    May run the exec plugin that the file names. Raises ConfigError, in words for people.
    """
    found = await _load(paths, context)
    try:
        tls = _tls(found)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError([f"{paths}: its certificates cannot be used: {error}"]) from error
    return Access(
        server=found.host.rstrip("/"),
        credentials=KubeconfigCredentials(paths, context, _authorization(found)),
        tls=tls,
        server_name=found.tls_server_name or None,
        proxy=found.proxy or None,
    )


async def _load(paths: str, context: str) -> Any:
    """kubernetes_asyncio's Configuration, filled from the file."""
    config = await asyncio.to_thread(importlib.import_module, "kubernetes_asyncio.config")
    client = importlib.import_module("kubernetes_asyncio.client")
    found = client.Configuration()
    try:
        await config.load_kube_config(
            config_file=paths, context=context or None, client_configuration=found
        )
    except (config.ConfigException, *_ITS_ERRORS) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError([f"{paths}: cannot be used as kubeconfig: {reason}"]) from error
    return found


def _authorization(found: Any) -> str:
    return str(found.api_key.get("BearerToken") or "")


def _tls(found: Any) -> Callable[[], ssl.SSLContext] | None:
    """Made anew when a file that the kubeconfig names has changed; what stands in it stays."""
    if not found.host.startswith("https:"):
        return None
    files = (found.ssl_ca_cert, found.cert_file, found.cert_file and found.key_file)
    return Watched(lambda: _context(found), *(Path(file) for file in files if file)).current


def _context(found: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=found.ssl_ca_cert or None)
    if found.cert_file:
        context.load_cert_chain(found.cert_file, found.key_file or None)
    if not found.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
