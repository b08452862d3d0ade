"""What clients asked and were told, with times, and whether any order of it explains the answers.

`record` writes a history while clients run, `workload` is such clients, `check` judges a history
node by node. For tests and campaigns; knows the service by its answers only.
"""
