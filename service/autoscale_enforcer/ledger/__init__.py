"""Every reservation, in Redis, changed by atomic scripts only.

The only package that knows Redis. `Ledger` is what the others use: one typed method a script.
"""
