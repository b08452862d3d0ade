"""The Kubernetes API: how to reach it, ask it, and follow it. Nothing of aiohttp leaves here.

`access` and `kubeconfig` say where it is and who we are, `client` asks, `reflector` follows one
kind of object for as long as the process lives. What the answers mean for the ledger is decided
elsewhere.
"""
