"""Everything on one machine without Docker: a private Redis, replica processes, one cluster file.

Knows replicas by their command line, their ready line and their ports only. Imported by `cli`.
"""
