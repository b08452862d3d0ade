"""What a port shows to its clients, and which certificates of theirs it believes."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from autoscale_enforcer.errors import ConfigError
from autoscale_enforcer.watched_files import Watched


def server_tls(
    cert: Path, key: Path, *, client_ca: Path | None = None, is_optional: bool = False
) -> Callable[[], ssl.SSLContext]:
    """The context for the next connection, of the files as they are then.

    With `client_ca` a client must show a certificate of such a CA, or may where it is optional.
    Connections that there are keep what they began with. Raises ConfigError where the files cannot
    be used at the start; later the last ones that could are used.
    """
    files = (cert, key, *((client_ca,) if client_ca else ()))

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # A session that is taken up again shows no certificate: what was believed once would be
        # believed on.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        # Without it a key with a passphrase would be asked for on a terminal.
        context.load_cert_chain(cert, key, password=str)
        if client_ca:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL if is_optional else ssl.CERT_REQUIRED
        return context

    try:
        return Watched(make, *files).current
    except (OSError, ValueError) as error:
        names = ", ".join(str(file) for file in files)
        raise ConfigError([f"tls: {names}: cannot be used: {error}"]) from error


def names_in(certificate: dict[str, Any] | None) -> Iterator[str]:
    """The common name and the alternative names of a client's certificate; none without one.

    Only of one that was verified: `ssl` tells nothing of others.
    """
    shown = certificate or {}
    for part in shown.get("subject", ()):
        yield from (value for name, value in part if name == "commonName")
    yield from (value for _, value in shown.get("subjectAltName", ()) if isinstance(value, str))
