"""etcd and kube-apiserver with RBAC, and kube-scheduler, each a process of its own on loopback."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import ssl
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from tests.e2e.harness.api import Api
from tests.e2e.harness.binaries import Binaries
from tests.support.ports import free_port
from tests.support.process import Process

SCHEDULER_NAME = "autoscale-scheduler"

ADMISSION_OFF = "ServiceAccount,TaintNodesByCondition"
"""What waits for controllers that do not run here: to make the default service account, and to take
the taint off a new node."""


class ControlPlane:
    """An empty cluster: no nodes, no controllers, namespaces and RBAC as Kubernetes begins with.

    `etcd` and `kube_apiserver` may be killed, paused and started again while it runs; what etcd
    holds stays until the `with` block ends.
    """

    def __init__(self, binaries: Binaries, *apiserver_args: str) -> None:
        self.binaries = binaries
        self.folder = Path(tempfile.mkdtemp(prefix="ae-e2e-"))
        self.admin_token = secrets.token_hex(16)
        self.scheduler_token = secrets.token_hex(16)
        self._etcd_url = f"http://127.0.0.1:{free_port()}"
        self._port = free_port()
        self._apiserver_args = apiserver_args
        self.etcd = Process(
            [str(binaries.etcd), *self._etcd_settings()],
            folder=self.folder,
            is_ready=self._is_etcd_ready,
        )
        self.kube_apiserver = Process(
            [str(binaries.kube_apiserver), *self._apiserver_settings()],
            folder=self.folder,
            is_ready=self._is_apiserver_ready,
        )

    def __enter__(self) -> Self:
        try:
            self._write_users()
            self.etcd.start()
            self.kube_apiserver.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kube_apiserver.kill()
        self.etcd.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self) -> Path:
        return self._certificates / "apiserver.crt"

    def api(self, token: str = "") -> Api:
        """A client of whoever holds the token; of the administrator if none is given."""
        return Api(self.url, token=token or self.admin_token, ca_file=self.ca_file)

    def kubeconfig(self, token: str = "") -> Path:
        """A kubeconfig file for whoever holds the token; the administrator's if none is given."""
        token = token or self.admin_token
        path = self.folder / f"kubeconfig-{token[-16:]}.json"
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": "e2e", "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        }
        path.write_text(json.dumps(document))
        return path

    @property
    def _certificates(self) -> Path:
        return self.folder / "certificates"

    @property
    def _users(self) -> Path:
        return self.folder / "users.csv"

    def _write_users(self) -> None:
        self._users.write_text(
            f"{self.admin_token},admin,admin,system:masters\n"
            f"{self.scheduler_token},system:kube-scheduler,system:kube-scheduler\n"
        )

    def _etcd_settings(self) -> list[str]:
        return [
            *("--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync", "--log-level=warn"),
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            "--listen-peer-urls=http://127.0.0.1:0",
        ]

    def _apiserver_settings(self) -> list[str]:
        # kube-apiserver makes its own certificate; the key of that signs service accounts' tokens.
        key = self._certificates / "apiserver.key"
        return [
            f"--etcd-servers={self._etcd_url}",
            *("--bind-address=127.0.0.1", f"--secure-port={self._port}"),
            *("--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"),
            f"--cert-dir={self._certificates}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--token-auth-file={self._users}",
            "--authorization-mode=RBAC",
            f"--disable-admission-plugins={ADMISSION_OFF}",
            "--profiling=false",
            *self._apiserver_args,
        ]

    def _is_etcd_ready(self) -> bool:
        return answers(f"{self._etcd_url}/health")

    def _is_apiserver_ready(self) -> bool:
        if not self.ca_file.exists():
            return False
        tls = ssl.create_default_context(cafile=self.ca_file)
        made_late = [f"/api/v1/namespaces/{name}" for name in ("default", "kube-system")]
        paths = ["/readyz", *made_late]
        return all(answers(self.url + path, tls, self.admin_token) for path in paths)


class Scheduler:
    """kube-scheduler with the rights Kubernetes gives it, and the configuration that is handed in.

    With the token of another user it has that one's rights and leads only by the lease that the
    configuration names. `process` may be killed, paused and started again while it runs.
    """

    def __init__(
        self, control_plane: ControlPlane, configuration: dict[str, Any], token: str = ""
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ae-e2e-"))
        self._port = free_port()
        self._configuration = configuration | {
            "clientConnection": {
                **configuration.get("clientConnection", {}),
                "kubeconfig": str(control_plane.kubeconfig(token or control_plane.scheduler_token)),
            },
        }
        if not token:
            self._configuration["leaderElection"] = {"leaderElect": False}
        command = [
            str(control_plane.binaries.kube_scheduler),
            f"--config={self.folder / 'configuration.json'}",
            *("--bind-address=127.0.0.1", f"--secure-port={self._port}"),
            "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
            "--v=3",
        ]
        self.process = Process(command, folder=self.folder, is_ready=self._is_ready)

    def __enter__(self) -> Self:
        try:
            (self.folder / "configuration.json").write_text(json.dumps(self._configuration))
            self.process.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """Where `/metrics` is; the certificate is its own."""
        return f"https://127.0.0.1:{self._port}"

    def pending_pods(self) -> dict[str, int]:
        """How many pods are in each of its queues: active, backoff, gated, unschedulable."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=5, context=self._tls) as answer:
            text = answer.read().decode()
        found = re.findall(r'^scheduler_pending_pods{queue="(\w+)"} (\d+)', text, re.MULTILINE)
        return {queue: int(count) for queue, count in found}

    @property
    def _tls(self) -> ssl.SSLContext:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        return tls

    def _is_ready(self) -> bool:
        return answers(f"{self.url}/readyz", self._tls)


def scheduler_configuration(extender_url: str | None = None) -> dict[str, Any]:
    """As the design has it: kube-scheduler's own fit stays on, the scores we replace are off.

    The extender's verbs are below that URL.
    """
    replaced = ["NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality"]
    configuration: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": SCHEDULER_NAME,
                "plugins": {"score": {"disabled": [{"name": name} for name in replaced]}},
            }
        ],
    }
    if extender_url is not None:
        configuration["extenders"] = [
            {
                "urlPrefix": extender_url,
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "preemptVerb": "preempt",
                "bindVerb": "bind",
                "weight": 1,
                "httpTimeout": "5s",
                "nodeCacheCapable": True,
                "ignorable": False,
            }
        ]
    return configuration


def answers(url: str, tls: ssl.SSLContext | None = None, token: str = "") -> bool:
    """Whether a GET is answered with a 200 now."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5, context=tls) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
