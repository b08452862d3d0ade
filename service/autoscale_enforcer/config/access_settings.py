"""Who may call each port, and what each speaks: frozen values, as in `settings`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PORTS = ("extender", "agent", "admin")

_ACCOUNT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """What our ports show, and whom they believe. Files are read anew when they change."""

    cert_file: Path | None = None
    """PEM, ours and what leads to its CA; none: every port speaks plain HTTP."""
    key_file: Path | None = None
    """PEM, of the certificate; without a passphrase."""
    ports: tuple[str, ...] = ("extender", "admin")
    """Which ports speak TLS where there is a certificate. Not the agents': NeonVM's cannot."""
    client_ca_file: Path | None = None
    """PEM; who shows a certificate of these CAs is who it says. None: nobody is asked for one."""

    def speaks(self, port: str) -> bool:
        """Whether that port speaks TLS."""
        return self.cert_file is not None and port in self.ports

    def problems(self) -> Iterator[str]:
        """What cannot be used, field first."""
        if (self.cert_file is None) != (self.key_file is None):
            yield "tls.cert_file: needs tls.key_file, and the other way round"
        if not self.ports or set(self.ports) - set(PORTS):
            yield f"tls.ports: must be some of {', '.join(PORTS)}"
        if self.client_ca_file and not self.cert_file:
            yield "tls.client_ca_file: needs tls.cert_file: no certificate is shown without TLS"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """Who may call, and what for."""

    extender_names: tuple[str, ...] = ()
    """Names of client certificates, common or alternative, that may call the extender port; none:
    it asks for no certificate."""
    agent_names: tuple[str, ...] = ()
    """The same at the agent port, beside `agent_accounts`."""
    agent_accounts: tuple[str, ...] = ()
    """Service accounts, NAMESPACE/NAME, whose tokens may call the agent port, as Kubernetes reviews
    them. With neither these nor `agent_names` anybody may: NeonVM's agents send nothing."""
    agent_audience: str = ""
    """That the tokens must be made for; empty: the API server's own."""
    admin_token_file: Path | None = None
    """Holds the token that changes over the admin port must carry; none: nothing is changed there.
    Read anew for each change."""

    def problems(self, tls: TlsSettings) -> Iterator[str]:
        """What cannot be used, by itself or with that TLS, field first."""
        for name, port in (("extender_names", "extender"), ("agent_names", "agent")):
            if getattr(self, name) and not (tls.client_ca_file and tls.speaks(port)):
                yield f"access.{name}: needs tls.client_ca_file, and {port} in tls.ports"
        if tls.client_ca_file and not (self.extender_names or self.agent_names):
            yield "tls.client_ca_file: needs access.extender_names or access.agent_names"
        if self.agent_accounts and not tls.speaks("agent"):
            yield "access.agent_accounts: needs agent in tls.ports: without it all can read them"
        for account in self.agent_accounts:
            if not _ACCOUNT.fullmatch(account):
                yield f"access.agent_accounts: {account!r} is not NAMESPACE/NAME"
        if self.agent_audience and not self.agent_accounts:
            yield "access.agent_audience: needs access.agent_accounts"
