"""The ledger once more, in plain Python: what the scripts are compared with, and the spec to read.

Pure: no Redis, no clock. Written from DESIGN.md, not from the scripts. For tests and the bench.
"""
