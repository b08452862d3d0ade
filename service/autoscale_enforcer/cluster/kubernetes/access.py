"""Where the API server is and who we are to it.

In a cluster that takes a few lines, so it is done here: importing kubernetes_asyncio doubles a
replica's memory (by 37 MiB) and takes seconds where nothing is compiled yet. Only a kubeconfig
file, with all that such files may hold, is left to it.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autoscale_enforcer.errors import ClusterUnavailable, ConfigError
from autoscale_enforcer.watched_files import Watched

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD_AFTER = 60.0
"""Seconds that a token read from a file is used; the kubelet renews it long before it expires."""
DEFAULT_KUBECONFIG = Path("~/.kube/config")


class Credentials(Protocol):
    """What goes into the Authorization header."""

    async def authorization(self) -> str:
        """The header's value; empty: none, for a certificate speaks for us.

        Raises ClusterUnavailable where it cannot be had.
        """
        ...

    async def renew(self, refused: str) -> bool:
        """Look again after a 401; whether there is now another value than the one refused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """All that is needed to speak with one API server."""

    server: str
    """URL without a path at its end, or with the one that a proxy wants."""
    credentials: Credentials
    tls: Callable[[], ssl.SSLContext] | None = None
    """What the next connection trusts, and shows of us: its files may be replaced at any time."""
    server_name: str | None = None
    """The name its certificate must carry, where that is not the one in the URL."""
    proxy: str | None = None


class NoCredentials:
    """For a client certificate, or an API server that asks for nothing."""

    async def authorization(self) -> str:
        """Nothing."""
        return ""

    async def renew(self, refused: str) -> bool:  # noqa: ARG002
        """There is nothing else."""
        return False


class TokenFile:
    """A token that somebody else renews in its file: read at most once a minute, and on a 401."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._token = ""
        self._read_at = float("-inf")

    async def authorization(self) -> str:
        """The token as it was at most a minute ago; an older one where the file is gone."""
        if self._clock() - self._read_at >= REREAD_AFTER:
            self._read()
        return f"Bearer {self._token}"

    async def renew(self, refused: str) -> bool:
        """Read the file again, unless another request has done so since."""
        if refused == f"Bearer {self._token}":
            self._read()
        return refused != f"Bearer {self._token}"

    def _read(self) -> None:
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            if not self._token:
                raise ClusterUnavailable(f"no token: {error}") from error
            return
        self._token = token or self._token
        self._read_at = self._clock()


def in_cluster(environment: Mapping[str, str], *, folder: Path = SERVICE_ACCOUNT) -> Access | None:
    """Access as the pod's service account; None: this is no pod.

    Raises ConfigError where it is one and its service account's files cannot be used.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        return None
    ca = folder / "ca.crt"
    try:
        tls = Watched(lambda: ssl.create_default_context(cafile=str(ca)), ca).current
    except (OSError, ssl.SSLError) as error:
        raise ConfigError([f"{ca}: cannot be used: {error}"]) from error
    if not (folder / "token").is_file():
        raise ConfigError([f"{folder / 'token'}: missing: is automountServiceAccountToken off?"])
    shown = f"[{host}]" if ":" in host else host
    return Access(
        server=f"https://{shown}:{port}", credentials=TokenFile(folder / "token"), tls=tls
    )


async def find_access(
    environment: Mapping[str, str], *, kubeconfig: str = "", context: str = ""
) -> Access:
    """Access by the file that was named, else $KUBECONFIG, else as a pod, else ~/.kube/config.

    The order of Kubernetes' own controllers. Raises ConfigError where there is none, or where the
    first of them cannot be used.
    """
    named = kubeconfig or environment.get("KUBECONFIG", "")
    if not named and not context and (access := in_cluster(environment)):
        return access
    paths = named or _default_kubeconfig()
    if not paths:
        raise ConfigError(["no way to the Kubernetes API: not in a pod, and no kubeconfig file"])
    # Here and not above: what it brings is heavy, and a pod never needs it.
    from autoscale_enforcer.cluster.kubernetes.kubeconfig import read_kubeconfig  # noqa: PLC0415

    return await read_kubeconfig(paths, context=context)


def _default_kubeconfig() -> str:
    path = DEFAULT_KUBECONFIG.expanduser()
    return str(path) if path.is_file() else ""
