"""The three front doors over HTTP: kube-scheduler's, the agents', and people's.

Decides with `policy`, asks `ledger` and `cluster`, speaks with `wire`. The only package that
serves HTTP; `replica` puts one process together.
"""
