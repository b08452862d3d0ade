"""Kubernetes objects read into the model's facts: quantities, pod costs, VMs, nodes, listings.

Pure: no I/O, no clock. What cannot be understood is an ObjectError that carries the path of the
field, as Kubernetes writes it. Imports nothing of this package but `model` and `errors`.
"""
