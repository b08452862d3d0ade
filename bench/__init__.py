"""Measures the service against references in the same run; CONTRIBUTING says how to run it.

Nothing of the product imports this, and nothing here is shipped.
"""
