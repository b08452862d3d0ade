"""The command line: one module a command, each turning options into one call further down.

Imports anything; nothing imports it.
"""
