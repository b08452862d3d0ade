"""A kubeconfig by which a replica in a process of its own finds the fake API server."""

from __future__ import annotations

import json
from pathlib import Path


def kubeconfig_of(url: str, folder: Path, *, token: str = "t") -> Path:
    """The file, written into the folder."""
    context = {"cluster": "c", "user": "u"}
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "contexts": [{"name": "c", "context": context}],
                "current-context": "c",
                "users": [{"name": "u", "user": {"token": token}}],
            }
        )
    )
    return path
